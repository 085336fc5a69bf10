// SPDX-License-Identifier: Apache-2.0
// The values that are advertised to the kubelet. The scanner makes them, and AllocationCore keeps them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/advertised_resources.h"
#include "kubevirt-plugin/discovery/resource_name.h"

namespace ferry::plugin {

/// The way a VM takes the device, which decides the questions to the host.
enum class DeviceKind {
  pci_function,     ///< a whole GPU, or a companion
  mediated_device,  ///< a vGPU with a UUID
  kata_function,    ///< a whole GPU under Kata's ID, a number
  vendor_vgpu,      ///< a vGPU that is a virtual function (vendor-specific VFIO), a PCI function for the VM
};

/// A function that goes to a VM with its GPU, and that a pod can ask for by a place.
struct Companion {
  std::string address;
  std::string model;          ///< as ScannedDevice::model
  std::string driver;         ///< as ScannedDevice::driver
  std::string resource = {};  ///< the resource of its places
  std::string env_name = {};  ///< of that resource

  /// The kubelet device ID of its place. The ID is not the address, since a pod with this place may have
  /// another GPU, and that GPU's companion.
  std::string place() const { return "place-" + address; }
  bool operator==(const Companion&) const = default;
};

/// A device in the form in which a pod can get it.
struct ScannedDevice {
  /// The kubelet device ID: a PCI address or a mediated device's UUID, stable over reboots; for Kata a number
  /// (kata_key()). Unique over all resources.
  std::string id;
  DeviceKind kind = DeviceKind::pci_function;
  /// The source of the resource name: "10de:2330", or the vGPU type's name.
  std::string model;
  /// The driver at the time of the scan. Allocate refuses the device under another one.
  std::string driver;
  /// The unit of allocation: two pods never get devices of one group.
  std::uint32_t iommu_group = 0;
  /// Absent if the kernel does not know it; never guessed.
  std::optional<int> numa_node;
  /// The container's device nodes in the answer's order: absolute paths, the same on the host and inside.
  std::vector<std::string> nodes;
  /// The reason why no pod may get it now; empty: it is healthy.
  std::string problem;
  /// A vGPU's type in the host's terms, else empty. For a vendor_vgpu it is the number that its virtual
  /// function must show at Allocate. For a mediated device it is its type's directory ("nvidia-558"), which
  /// counts if the driver has no name for the type.
  std::string vgpu_type = {};
  /// The address of a vGPU's GPU, else empty.
  std::string gpu = {};
  /// The host bridge and the bridges above the device or its GPU, outermost first: "pci0000:00",
  /// "0000:00:01.0".
  std::vector<std::string> bus_path = {};
  /// Its name in sysfs. Empty: its ID.
  std::string sysfs_name = {};
  /// A whole GPU's companions whose addresses its pod gets, each in its own resource's variable. All are in
  /// the GPU's IOMMU group.
  std::vector<Companion> companions = {};

  const std::string& host_name() const { return sysfs_name.empty() ? id : sysfs_name; }
  bool operator==(const ScannedDevice&) const = default;
};

using api::NotAdvertised;

/// A name in a pod's limits, with its devices sorted by ID, or with places. There are as many places as GPUs
/// with such a companion. A pod that has a place gets the address of its own GPU's companion; the place
/// itself stands for no device.
struct Resource {
  ResourceName name;
  EnvPrefix env_prefix = EnvPrefix::pci_resource;
  std::vector<ScannedDevice> devices;
  bool places = false;  ///< a resource of places; `devices` is empty

  bool operator==(const Resource&) const = default;
};

}  // namespace ferry::plugin
