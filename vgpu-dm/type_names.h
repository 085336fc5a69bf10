// SPDX-License-Identifier: Apache-2.0
// What a driver has called the types of vendor-specific VFIO: it lists only those that can be made now, so
// that a full GPU tells no names, and the table has not all of them. Kept from a GPU's own lists in
// run/ferry/vgpu-type-names.json, until the reboot.
#pragma once

#include <span>

#include "common/host_fs.h"
#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry {

/// Names the vGPUs that have only a number, by what the same GPU has listed earlier. A file that cannot be
/// read names nothing.
void name_by_memory(const HostFs& host, VgpuInventory& inventory);
void name_by_memory(const HostFs& host, VgpuGpu& gpu);

/// Keeps what is listed now and neither kept nor in the table of types. Writes only where that is something.
/// For several threads of one process; the node's lock keeps others away.
Result<> remember_names(HostFs& host, std::span<const VgpuGpu> gpus);

}  // namespace ferry
