// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/advertised_resources.h"
#include "kubevirt-plugin/discovery/resource_name.h"

namespace ferry::plugin {

/// A device of the kubelet's lists, in the form of advertised.json.
using ListedDevice = api::AdvertisedDevice;

struct ListedResource {
  ResourceName name;
  EnvPrefix env_prefix = EnvPrefix::pci_resource;
  /// Without ListedDevice::resource. A NUMA node is known for all of them or given for none.
  std::vector<ListedDevice> devices;
  bool places = false;  ///< its devices are places (Companion::place()), without group or allocation

  bool operator==(const ListedResource&) const = default;
};

/// The lists and allocations at one moment. A snapshot never changes.
struct Snapshot {
  std::uint64_t generation = 0;  ///< grows by one with each change
  /// They are in order of first appearance.
  std::vector<std::shared_ptr<const ListedResource>> resources;
  /// Allocated devices without a list entry, since they are unavailable or unusable now. Other plugins'
  /// devices and those without a known group are not among them.
  std::vector<ListedDevice> unlisted;
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
