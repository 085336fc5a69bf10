// SPDX-License-Identifier: Apache-2.0
// What a driver has called the types of vendor-specific VFIO: it lists only those that can be made now, so
// that a full GPU tells no names, and the table has not all of them, nor knows each release's numbers. Kept
// from a GPU's own lists, and from what the driver's library says, in run/ferry/hostd/vgpu-type-names.json,
// until the reboot.
#pragma once

#include <set>
#include <span>

#include "common/host_fs.h"
#include "common/result.h"
#include "mdev/gpu_management.h"
#include "mdev/vgpu.h"

namespace ferry {

/// Names the vGPUs that have only a number, by what the same GPU has listed earlier. A file that cannot be
/// read names nothing.
void name_by_memory(const HostFs& host, VgpuInventory& inventory);
void name_by_memory(const HostFs& host, VgpuGpu& gpu);

/// Whether one of its vGPUs is of a type that the driver does not list now, and of which nothing is kept: its
/// name is the table's, or nobody's.
bool driver_told_no_name(const HostFs& host, const VgpuGpu& gpu);
/// Names those by what the driver's library calls the type: its word goes before the table's.
void name_by_library(const HostFs& host, const ManagedGpu& said, VgpuGpu& gpu);

/// Keeps what is listed now and is not kept, and the names of the vGPUs of `named`, which the library has
/// told. Writes only where that is something. For several threads of one process; the node's lock keeps
/// others away.
Result<> remember_names(HostFs& host, std::span<const VgpuGpu> gpus, const std::set<PciAddress>& named = {});

}  // namespace ferry
