// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"
#include "vfio/pci/inventory.h"

namespace ferry::mdev {

// Messages about vGPUs that block a change, with the command that removes them.

/// True if Ferry is seen to have made the vGPU (is_ours() of vgpu-dm decides). An empty function: no vGPU is
/// known to be Ferry's.
using MadeByFerry = std::function<bool(const VgpuDevice&)>;

/// The command that removes a GPU's vGPUs: "ferry vgpu delete --device 0000:17:00.0", with --foreign if Ferry
/// did not make all of them.
std::string removal_command(const VgpuGpu& gpu, const MadeByFerry& ours);

/// A file of a GPU that exists below the host's root under a vGPU host driver, and under no ordinary driver.
/// ABI: nv-procfs.c of NVIDIA's open kernel module creates the file in builds for vGPU hosts only.
std::filesystem::path host_driver_sign(const vfio::PciAddress& gpu);

/// Reads the GPUs, their vGPU frameworks and their vGPUs. A host without GPUs gives an empty inventory. A GPU
/// that cannot be read carries its own problem. Errors: a directory that exists cannot be listed.
Result<VgpuInventory> scan_vgpus(const HostFs& host, const vfio::Inventory& inventory,
                                 const vfio::AcceleratorRules& rules);

/// Reads `before` again; `inventory` must know its virtual functions. Errors as above, or Errc::not_found:
/// the inventory no longer has the GPU.
Result<VgpuGpu> scan_gpu_again(const HostFs& host, const vfio::Inventory& inventory, const VgpuGpu& before);

/// Reads the vGPUs of `gpu` again. Its listed types stay, since reading them costs far more and verifying a
/// write does not need them. With VgpuFacts::identity a known vGPU keeps its other fields, and a new one has
/// none. A parent that cannot be read gets a problem.
void scan_devices_again(const HostFs& host, const vfio::Inventory& inventory, VgpuFacts facts, VgpuGpu& gpu);

/// The GPUs that "all accelerators" does not bind to a VFIO driver, each with the reason as a clause: its
/// driver offers vGPU types, it has virtual functions, or it carries vGPUs.
std::map<vfio::PciAddress, std::string> kept_for_vgpus(const VgpuInventory& inventory);

/// The GPUs and virtual functions that carry vGPUs, or may carry vGPUs that cannot be read. They must stay
/// bound even if named; a whole virtual function need not. The value is the reason, as a clause with the
/// removal_command().
std::map<vfio::PciAddress, std::string> carriers_of_vgpus(const VgpuInventory& inventory,
                                                          const MadeByFerry& ours = {});

/// The UseProbe question about a vGPU: its group's node and its own VFIO device node, if they exist.
vfio::UseQuestion use_question(const VgpuDevice& device);

// vGPUs of a captured host that Ferry made there. Their UUIDs show it only together with the machine's ID,
// which no capture has. So scripts/capture-host lists them in a file, one line "UUID NUMBER" each.

/// Exists in a captured host's root only; scan_vgpus() reads it.
inline constexpr const char* kCapturedVgpus = "captured-by-ferry/vgpus";

}  // namespace ferry::mdev
