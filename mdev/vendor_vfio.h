// SPDX-License-Identifier: Apache-2.0
// vGPUs without mdev: the directory nvidia/ that NVIDIA's driver adds to each virtual function. Writing a
// type's number to current_vgpu_type creates a vGPU, and writing 0 removes it.
// ABI: NVIDIA's vGPU host driver 17 and newer on Linux 6.8 and newer. No document of the kernel describes it,
// and the text of creatable_vgpu_types has had several forms.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"
#include "vfio/pci/pci_function.h"

namespace ferry::mdev {

/// Parses a text like "ID    : vGPU Name\n1153  : NVIDIA L40S-12Q\n" and keeps its order. Lines "id name" and
/// "name id" count too. Other lines, such as the header, are skipped. The first of two lines with one number
/// counts. An id is decimal, above 0, without leading zeros. One vGPU of each type can be made.
std::vector<VgpuType> parse_creatable_types(std::string_view text);

/// Adds a virtual function that has current_vgpu_type to the GPU's parents, and its vGPU to the GPU's vGPUs.
/// A vGPU has its ID as its name, since the function itself may no longer list the type. A file that cannot
/// be read becomes the parent's problem.
void read_vendor_function(const HostFs& host, const vfio::PciFunction& function, VgpuGpu& gpu);

/// The file that takes a type's number. EINVAL or EIO: the type cannot be created, and the file reads 0
/// afterwards. EPERM: 0 was written while a VM uses the function.
std::filesystem::path current_type_path(const vfio::PciAddress& function);

}  // namespace ferry::mdev
