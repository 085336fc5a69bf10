// SPDX-License-Identifier: Apache-2.0
// RuntimeClass objects (node.k8s.io/v1), which a pod names to run in a VM of a class.
//
// They never have the label nvidia.com/kata-runtime-class: gpu-operator, which no longer runs kata-manager,
// deletes every RuntimeClass with that label.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kata-manager/classes/class_file.h"

namespace ferry::kata {

/// The guest's memory in MiB by default: Kata's value for GPUs.
inline constexpr std::uint64_t kGuestMemoryMib = 8192;
/// The VM's memory on the host beside the guest's, in MiB: QEMU, shim, virtiofsd. Kata's value.
inline constexpr std::uint64_t kBesideGuestMib = 2048;

/// The guest's memory in the class's own settings, else kGuestMemoryMib, without Kata's configuration.
std::uint64_t guest_memory_mib(const KataClass& kata);

/// Each has the label app.kubernetes.io/managed-by: ferry.
struct RuntimeClass {
  std::string handler;  ///< name of the container runtime's entry, and of the object
  std::map<std::string, std::string> node_selector;  ///< empty: any node
  std::map<std::string, std::string> overhead;       ///< podFixed: resource to quantity
};

/// The RuntimeClasses of a class: one for its name and for each alias.
///
/// The default node selector of a confidential class has the label of NVIDIA's CC manager
/// (nvidia.com/cc.ready.state) and that of the processor's feature; other classes have none. The default
/// overhead is one processor, and guest_memory_mib() plus kBesideGuestMib, because containers' limits do
/// not include it.
std::vector<RuntimeClass> runtime_classes(const KataClass& kata);

/// The classes as YAML documents; "" for none.
std::string runtime_classes_yaml(std::span<const RuntimeClass> classes);
/// The classes as a List in JSON, for `kubectl apply -f -`.
std::string runtime_classes_json(std::span<const RuntimeClass> classes);

}  // namespace ferry::kata
