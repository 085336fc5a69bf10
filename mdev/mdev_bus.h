// SPDX-License-Identifier: Apache-2.0
// The mediated device framework in sysfs.
// ABI: Documentation/ABI/testing/sysfs-bus-vfio-mdev; Documentation/driver-api/vfio-mediated-device.rst.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry {

struct MdevBus {
  std::map<PciAddress, VgpuParent> parents;
  std::vector<VgpuDevice> devices;  ///< on parents that are PCI functions, in order of parent, then UUID
  std::vector<std::string> notes;   ///< what was passed over, and why
};

/// Reads all parents, their types and the mediated devices. A host without the framework has none of them; a
/// parent that is no PCI function is passed over with a note. Errors: a directory that exists cannot be
/// listed.
Result<MdevBus> read_mdev_bus(const HostFs& host);

/// The same for these functions alone: what is read back after a write.
Result<MdevBus> read_mdev_bus(const HostFs& host, const std::set<PciAddress>& parents);

/// The mediated devices on one parent, put behind those in `into`; far cheaper than a look at their types, by
/// which they are named all the same. One that cannot be read is the parent's problem.
void read_mdev_devices(const HostFs& host, VgpuFacts facts, VgpuParent& parent,
                       std::vector<VgpuDevice>& into);

/// Where a device's place in the GPU's memory is read, and another one written: EINVAL unless it is free and
/// one of its type's, ENXIO or ENOENT where the GPU has none to choose.
std::filesystem::path placement_path(const PciAddress& parent, const VgpuId& id);

/// Where to write a UUID to create a device: EINVAL when the type no longer fits, EEXIST when the UUID is in
/// use anywhere on the host.
std::filesystem::path create_path(const PciAddress& parent, const std::string& type_id);

/// Where to write "1" to remove a device. Through its parent, so that the path of a write that hangs names
/// the GPU also when the device is gone from the bus.
std::filesystem::path remove_path(const PciAddress& parent, const VgpuId& id);

/// Where the parameters of a mediated device's plug-in are read and written, of drivers that have any: a
/// write replaces all of them, a blank takes them away. EPERM while a VM has the device.
std::filesystem::path params_path(const PciAddress& parent, const VgpuId& id);

/// Where it says how many more of a type can be created on a parent.
std::filesystem::path available_path(const PciAddress& parent, const std::string& type_id);

}  // namespace ferry
