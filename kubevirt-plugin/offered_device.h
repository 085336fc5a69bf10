// SPDX-License-Identifier: Apache-2.0
// The values that are offered to the kubelet, as the scanner makes them and the allocation core keeps them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kubevirt-plugin/resource_name.h"

namespace ferry {

/// How a virtual machine takes the device, and what the host has to say of it.
enum class DeviceKind {
  pci_function,     ///< a whole GPU, or a companion
  mediated_device,  ///< a vGPU with a UUID
  kata_function,    ///< the same as Kata knows it: by a number
  vendor_vgpu,      ///< a vGPU that is a virtual function (vendor-specific VFIO): a PCI function to the VM
};

/// A function that goes to a VM with its GPU and can be asked for beside it.
struct Companion {
  std::string address;
  std::string model;     ///< as a device's
  std::string driver;    ///< as a device's
  std::string resource;  ///< under which it is asked for: one of places
  std::string env_name;  ///< of that resource

  /// The kubelet device ID of the place that there is for it: no address, since whoever has the place may
  /// have another GPU, and that one's companion.
  std::string place() const { return "place-" + address; }
  bool operator==(const Companion&) const = default;
};

/// One device as a pod can get it.
struct OfferedDevice {
  /// The kubelet device ID: a PCI address or a mediated device's UUID, stable over reboots; for Kata a number
  /// (kata_key()). Unique over all resources.
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
  /// Of a vGPU its type as the host calls that: of a vendor_vgpu the number that its virtual function must
  /// say at Allocate; of a mediated device its directory ("nvidia-558"), which counts then where the driver
  /// has no name for the type. Else empty.
  std::string vgpu_type = {};
  /// Of a vGPU the GPU that carries it, as an address. Else empty.
  std::string gpu = {};
  /// The host bridge and the bridges above it, or above its GPU, outermost first: "pci0000:00",
  /// "0000:00:01.0".
  std::vector<std::string> bus_path = {};
  /// What sysfs calls it. Empty: by its ID.
  std::string sysfs_name = {};
  /// Of a whole GPU: those that its pod is told the addresses of, each under its own resource's variable. All
  /// are of its IOMMU group.
  std::vector<Companion> companions = {};

  const std::string& host_name() const { return sysfs_name.empty() ? id : sysfs_name; }
  bool operator==(const OfferedDevice&) const = default;
};

/// A device that cannot be given to a pod, and why.
struct NotOffered {
  std::string id;
  std::string reason;
  bool by_kind = false;  ///< nothing is wrong with it: such devices are not what is offered

  bool operator==(const NotOffered&) const = default;
};

/// One name in a pod's limits, and the devices that answer to it, in order of ID. Or places: as many as there
/// are GPUs with such a companion. A pod that has one may name the companion of the GPU that it has; the
/// place itself is worth nothing.
struct Resource {
  ResourceName name;
  EnvPrefix env_prefix = EnvPrefix::pci_resource;
  std::vector<OfferedDevice> devices;
  bool places = false;  ///< then there are no devices

  bool operator==(const Resource&) const = default;
};

}  // namespace ferry
