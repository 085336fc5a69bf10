// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kubevirt-plugin/resource_name.h"

namespace ferry {

/// One device as the kubelet is told of it.
struct ListedDevice {
  std::string id;
  std::string reason;            ///< why it is Unhealthy; empty when it is Healthy
  std::optional<int> numa_node;  ///< known for all devices of a resource or given for none
  std::uint32_t iommu_group = 0;
  bool allocated = false;
  std::string pod = {};  ///< "namespace/name", who has it, as far as the kubelet has said; empty: not known
  bool awaits_release = false;  ///< held back, or Unhealthy and still allocated
  /// It is well, and listed Unhealthy only because a pod has another device of its IOMMU group.
  bool held_with_group = false;

  bool healthy() const { return reason.empty(); }
  bool operator==(const ListedDevice&) const = default;
};

/// Allocated under a resource that is offered, and in none of its lists: withdrawn, or not fit to be offered.
struct UnlistedDevice {
  std::string resource;
  std::string id;
  std::uint32_t iommu_group = 0;

  bool operator==(const UnlistedDevice&) const = default;
};

struct ListedResource {
  ResourceName name;
  EnvPrefix env_prefix = EnvPrefix::pci_resource;
  std::vector<ListedDevice> devices;
  bool places = false;  ///< its devices are places (Companion::place()): of no group, and nobody's

  bool operator==(const ListedResource&) const = default;
};

/// What the kubelet has been offered at one moment, and what of it is allocated. Never changes once made.
struct Snapshot {
  std::uint64_t generation = 0;  ///< grows by one with each change
  /// In the order in which they first appeared.
  std::vector<std::shared_ptr<const ListedResource>> resources;
  /// Allocated all the same; those of other plugins, and of which no group is known, are not among them.
  std::vector<UnlistedDevice> unlisted;
  /// A device is held back, or only still listed, until another one, or it itself, is released; or a group
  /// has two holders; or there are unlisted ones; or one more vGPU of another type goes where an allocated
  /// one is, or elsewhere (VgpuPlacement).
  bool awaits_release = false;
  /// A device that is listed is allocated.
  bool is_allocated = false;
  /// A device is allocated, and it is not known to which pod.
  bool awaits_name = false;
};

}  // namespace ferry
