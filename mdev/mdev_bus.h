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
#include "mdev/stuck_gpus.h"
#include "mdev/vgpu.h"

namespace ferry::mdev {

struct MdevBus {
  std::map<vfio::PciAddress, VgpuParent> parents;
  std::vector<VgpuDevice> devices;  ///< on parents that are PCI functions, in order of parent, then UUID
  std::vector<std::string> notes;   ///< entries that were passed over, with the reason
};

/// Reads the parents, their types and the mediated devices. Without the framework the bus is empty; a parent
/// that is no PCI function is passed over with a note. `only`: the parents to read, to verify a write;
/// nullptr: all. Errors: a directory that exists cannot be listed.
Result<MdevBus> read_mdev_bus(const HostFs& host, const StuckGpus& stuck,
                              const std::set<vfio::PciAddress>* only = nullptr);

/// Appends the mediated devices of one parent to `into`, and names them by the parent's known types. Reading
/// types again would cost far more. A device that cannot be read becomes the parent's problem.
void read_mdev_devices(const HostFs& host, VgpuFacts facts, VgpuParent& parent,
                       std::vector<VgpuDevice>& into);

std::filesystem::path type_path(const vfio::PciAddress& parent, const std::string& type_id);
/// Reads the number of devices of a type that its parent can still create. Errc::malformed_host: no number.
Result<std::uint32_t> read_available(const HostFs& host, const std::filesystem::path& type);

}  // namespace ferry::mdev
