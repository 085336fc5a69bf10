// SPDX-License-Identifier: Apache-2.0
// Remembers a driver's names for the types of vendor-specific VFIO. The driver lists only types that can be
// made now, so a full GPU lists none; the table lacks some types and some releases' numbers. Names from a
// GPU's own lists and from the driver's library are kept until the reboot in
// run/ferry/hostd/vgpu-type-names.json.
#pragma once

#include <set>
#include <span>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu.h"

namespace ferry::vgpu {

/// Names vGPUs that have only a type number, from earlier lists of the same GPU. An unreadable file names
/// none.
void name_by_memory(const HostFs& host, mdev::VgpuInventory& inventory);
void name_by_memory(const HostFs& host, mdev::VgpuGpu& gpu);

/// True if a vGPU has a type that the driver does not list now and that is not remembered: its name is the
/// table's, or missing.
bool driver_told_no_name(const HostFs& host, const mdev::VgpuGpu& gpu);
/// Names such vGPUs by the library's name for the type, which has priority over the table's.
void name_by_library(const HostFs& host, const mdev::ManagedGpu& said, mdev::VgpuGpu& gpu);

/// Remembers newly listed types, and the names of the vGPUs of `named`, which the library told. Writes only
/// if there is news. Safe for several threads of one process; the node's file lock keeps other processes out.
Result<> remember_names(HostFs& host, std::span<const mdev::VgpuGpu> gpus,
                        const std::set<vfio::PciAddress>& named = {});

}  // namespace ferry::vgpu
