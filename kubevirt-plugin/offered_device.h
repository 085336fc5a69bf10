// SPDX-License-Identifier: Apache-2.0
// The values that are offered to the kubelet, as the scanner makes them and the allocation core keeps them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kubevirt-plugin/resource_name.h"

namespace ferry {

/// How a virtual machine takes the device. A vGPU on a virtual function (vendor-specific VFIO) is a
/// pci_function whose model is its vGPU type.
enum class DeviceKind { pci_function, mediated_device };

/// One device as a pod can get it.
struct OfferedDevice {
  /// The kubelet device ID, stable over reboots: a PCI address, or a mediated device's UUID. Unique over all
  /// resources.
  std::string id;
  DeviceKind kind = DeviceKind::pci_function;
  /// What the resource name was made from: "10de:2330", or the vGPU type's name.
  std::string model;
  /// Its driver when it was scanned. Allocate refuses it under another one.
  std::string driver;
  /// The unit of ownership: two pods never get devices of one group.
  std::uint32_t iommu_group = 0;
  /// Absent when the kernel does not know; never made up.
  std::optional<int> numa_node;
  /// Device nodes that the container needs, absolute, the same on the host and inside, in the answer's order.
  std::vector<std::string> nodes;
  /// Why no pod may get it now; empty when it is healthy.
  std::string problem;

  bool operator==(const OfferedDevice&) const = default;
};

/// One name in a pod's limits, and the devices that answer to it, in order of ID.
struct Resource {
  ResourceName name;
  EnvPrefix env_prefix = EnvPrefix::pci_resource;
  std::vector<OfferedDevice> devices;

  bool operator==(const Resource&) const = default;
};

}  // namespace ferry
