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

/// A file of a GPU that exists below the host's root under a vGPU host driver, and under no ordinary driver.
/// ABI: nv-procfs.c of NVIDIA's open kernel module creates the file in builds for vGPU hosts only.
std::filesystem::path host_driver_sign(const PciAddress& gpu);

/// Reads the GPUs, their vGPU frameworks and their vGPUs. A host without GPUs gives an empty inventory. A GPU
/// that cannot be read carries its own problem. Errors: a directory that exists cannot be listed.
Result<VgpuInventory> scan_vgpus(const HostFs& host, const Inventory& inventory,
                                 const AcceleratorRules& rules);

/// Reads `before` again; `inventory` must know its virtual functions. Errors as above, or Errc::not_found:
/// the inventory no longer has the GPU.
Result<VgpuGpu> scan_gpu_again(const HostFs& host, const Inventory& inventory, const VgpuGpu& before);

/// Reads the vGPUs of `gpu` again. Its listed types stay, since reading them costs far more and verifying a
/// write does not need them. With VgpuFacts::identity a known vGPU keeps its other fields, and a new one has
/// none. A parent that cannot be read gets a problem.
void scan_devices_again(const HostFs& host, const Inventory& inventory, VgpuFacts facts, VgpuGpu& gpu);

/// The GPUs that "all accelerators" does not bind to a VFIO driver, each with the reason as a clause: its
/// driver offers vGPU types, it has virtual functions, or it carries vGPUs.
std::map<PciAddress, std::string> kept_for_vgpus(const VgpuInventory& inventory);

/// The GPUs and virtual functions that carry vGPUs, or may carry vGPUs that cannot be read. They must stay
/// bound even if named. The value is the reason, as a clause.
std::map<PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory);

/// The UseProbe question about a vGPU: its group's node and its own VFIO device node, if they exist.
UseQuestion use_question(const VgpuDevice& device);

}  // namespace ferry
