// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/host_fs.h"
#include "common/result.h"
#include "mdev/vgpu.h"
#include "vfio/inventory.h"

namespace ferry {

/// What a GPU has below the host's root once a vGPU host driver has taken it, and under no ordinary driver.
/// ABI: nv-procfs.c of NVIDIA's open kernel module, which makes it in builds for vGPU hosts alone.
std::filesystem::path host_driver_sign(const PciAddress& gpu);

/// Reads which GPUs can carry vGPUs, how, and which they carry. A host without any is no error; what cannot
/// be read of one GPU is said there. Errors: a directory that exists cannot be listed.
Result<VgpuInventory> scan_vgpus(const HostFs& host, const Inventory& inventory,
                                 const AcceleratorRules& rules);

/// One GPU of `before` read again. `inventory` knows its virtual functions. Errors as above, or
/// Errc::not_found: the GPU is gone from there.
Result<VgpuGpu> scan_gpu_again(const HostFs& host, const Inventory& inventory, const VgpuGpu& before);

/// What a GPU carries, read again into it. What it offers stays as it was: that is far more to read, and
/// nobody needs it to see whether a write held. With VgpuFacts::identity the rest of a vGPU stays as it was
/// too, and of a new one is not known. A parent where something cannot be read says so.
void scan_devices_again(const HostFs& host, const Inventory& inventory, VgpuFacts facts, VgpuGpu& gpu);

/// The GPUs that "all accelerators" leaves out when they are bound whole, each with the reason as a clause:
/// its driver offers vGPU types, it has virtual functions, or it carries vGPUs.
std::map<PciAddress, std::string> kept_for_vgpus(const VgpuInventory& inventory);

/// The GPUs, and the virtual functions, that carry vGPUs, or may for all that can be read, and so must stay,
/// whatever is asked: each with the reason, as a clause.
std::map<PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory);

/// What to ask a UseProbe about a vGPU: its group's node and its own VFIO device node, where they exist.
UseQuestion use_question(const VgpuDevice& device);

}  // namespace ferry
