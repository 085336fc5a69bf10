// SPDX-License-Identifier: Apache-2.0
// RuntimeClass objects (node.k8s.io/v1): what a pod names to run in a VM of a class.
//
// They never carry the label nvidia.com/kata-runtime-class: gpu-operator deletes every RuntimeClass that has
// it since it does not run kata-manager any more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kata-manager/class_file.h"

namespace ferry {

/// The guest's own memory, in MiB, where nothing is said of it: what Kata ships for GPUs.
inline constexpr std::uint64_t kGuestMemoryMib = 8192;
/// What the VM takes on the host beside its guest's memory, in MiB: QEMU, shim, virtiofsd. Kata ships so
/// much.
inline constexpr std::uint64_t kBesideGuestMib = 2048;

/// The guest's memory as the class lays it over, or kGuestMemoryMib: for who does not know the configuration.
std::uint64_t guest_memory_mib(const KataClass& kata);

struct RuntimeClass {
  std::string name;
  std::string handler;  ///< the name of the container runtime's entry
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> node_selector;  ///< empty: any node
  std::map<std::string, std::string> overhead;       ///< podFixed: resource to quantity
};

/// Those of a class: one for its name and for each alias.
///
/// Without a node selector in the file those of a confidential class are that of NVIDIA's CC manager
/// (nvidia.com/cc.ready.state) and of the processor's feature; others have none. Without an overhead it is
/// one processor, and the guest's memory with kBesideGuestMib: that memory is outside of the limits that the
/// pod's containers have. `memory_mib`: KataDropIn::guest_memory_mib where the configuration is known;
/// absent: guest_memory_mib().
std::vector<RuntimeClass> runtime_classes(const KataClass& kata,
                                          std::optional<std::uint64_t> memory_mib = {});

/// As documents of YAML, one after the other; "" for none.
std::string runtime_classes_yaml(std::span<const RuntimeClass> classes);
/// As one List in JSON, which `kubectl apply -f -` takes.
std::string runtime_classes_json(std::span<const RuntimeClass> classes);

}  // namespace ferry
