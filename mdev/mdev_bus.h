// SPDX-License-Identifier: Apache-2.0
// The mediated device framework in sysfs.
// ABI: Documentation/ABI/testing/sysfs-bus-vfio-mdev; Documentation/driver-api/vfio-mediated-device.rst.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"

namespace ferry::mdev {

struct MdevBus {
  std::map<vfio::PciAddress, VgpuParent> parents;
  std::vector<VgpuDevice> devices;  ///< on parents that are PCI functions, in order of parent, then UUID
  std::vector<std::string> notes;   ///< entries that were passed over, with the reason
};

/// Reads all parents, their types and the mediated devices. Without the framework the bus is empty; a parent
/// that is no PCI function is passed over with a note. Errors: a directory that exists cannot be listed.
Result<MdevBus> read_mdev_bus(const HostFs& host);

/// Reads these functions only, to verify a write.
Result<MdevBus> read_mdev_bus(const HostFs& host, const std::set<vfio::PciAddress>& parents);

/// Appends the mediated devices of one parent to `into`, and names them by the parent's known types. Reading
/// types again would cost far more. A device that cannot be read becomes the parent's problem.
void read_mdev_devices(const HostFs& host, VgpuFacts facts, VgpuParent& parent,
                       std::vector<VgpuDevice>& into);

/// The file with a device's placement in the GPU's memory. A write moves the device. EINVAL: not free, or no
/// placement of its type. ENXIO or ENOENT: the GPU offers no choice.
std::filesystem::path placement_path(const vfio::PciAddress& parent, const VgpuId& id);

/// The file that creates a device when its UUID is written. EINVAL: the type no longer fits. EEXIST: the UUID
/// is in use on the host.
std::filesystem::path create_path(const vfio::PciAddress& parent, const std::string& type_id);

/// The file that removes a device when "1" is written. The path leads through the parent, so that a stuck
/// write names the GPU even after the device has left the bus.
std::filesystem::path remove_path(const vfio::PciAddress& parent, const VgpuId& id);

/// The file with the plug-in parameters of a mediated device; some drivers lack it. A write replaces all
/// parameters, and a blank clears them. EPERM while a VM uses the device.
std::filesystem::path params_path(const vfio::PciAddress& parent, const VgpuId& id);

/// The file with the number of devices of a type that a parent can still create.
std::filesystem::path available_path(const vfio::PciAddress& parent, const std::string& type_id);
/// Reads that file. Errc::malformed_host: it has no number.
Result<std::uint32_t> read_available(const HostFs& host, const std::filesystem::path& path);

}  // namespace ferry::mdev
