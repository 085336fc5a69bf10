// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kubevirt-plugin/discovery/resource_name.h"

namespace ferry::plugin {

/// A device in the form of the kubelet's lists.
struct ListedDevice {
  std::string id;
  std::string reason;            ///< why it is Unhealthy; empty when it is Healthy
  std::optional<int> numa_node;  ///< known for all devices of a resource or given for none
  std::uint32_t iommu_group = 0;
  bool allocated = false;
  std::string pod = {};  ///< "namespace/name", who has it, as far as the kubelet has said; empty: not known
  bool awaits_release = false;  ///< held back, being sanitized, or Unhealthy and still allocated
  /// It is well, and listed Unhealthy only because a pod has another device of its IOMMU group.
  bool held_with_group = false;
  std::optional<std::uint64_t> used_since = {};  ///< Allocations::used_since()

  bool healthy() const { return reason.empty(); }
  bool operator==(const ListedDevice&) const = default;
};

/// A device that is allocated under an advertised resource and in no list: unavailable or unusable now.
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
  bool places = false;  ///< its devices are places (Companion::place()), without group or allocation

  bool operator==(const ListedResource&) const = default;
};

/// The lists and allocations at one moment. A snapshot never changes.
struct Snapshot {
  std::uint64_t generation = 0;  ///< grows by one with each change
  /// They are in order of first appearance.
  std::vector<std::shared_ptr<const ListedResource>> resources;
  /// Allocated devices without a list entry, except other plugins' and those without a known group.
  std::vector<UnlistedDevice> unlisted;
  /// A release is awaited: a device is held back or only listed until one, a group has two allocations, or
  /// there are unlisted devices, or hostd sanitizes an allocated device after its use. Also true if a release
  /// would change the preferred GPU for a vGPU of another type (VgpuPlacement).
  bool awaits_release = false;
  /// A listed device is allocated.
  bool is_allocated = false;
  /// A device is allocated to a pod that is not known.
  bool awaits_name = false;
};

}  // namespace ferry::plugin
