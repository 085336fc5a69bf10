// SPDX-License-Identifier: Apache-2.0
// vGPUs without mdev: the directory nvidia/ that the vendor's driver gives each virtual function. Writing a
// type's number to current_vgpu_type makes a vGPU, writing 0 takes it away.
// ABI: NVIDIA's vGPU host driver 17 and newer on Linux 6.8 and newer. No document of the kernel describes it,
// and the text of creatable_vgpu_types has had several forms.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "mdev/vgpu.h"
#include "vfio/pci_function.h"

namespace ferry {

struct CreatableType {
  std::string id;    ///< decimal, above 0, without leading zeros
  std::string name;  ///< "NVIDIA L40S-12Q"
  bool operator==(const CreatableType&) const = default;
};

/// The types of a text like "ID    : vGPU Name\n1153  : NVIDIA L40S-12Q\n", in its order. Also "id name" and
/// "name id"; a line that is neither, such as the header, is passed over, and of two lines with one number
/// the first one counts.
std::vector<CreatableType> parse_creatable_types(std::string_view text);

/// A virtual function of this framework.
struct VendorFunction {
  VgpuParent parent;
  std::optional<VgpuDevice> device;  ///< named by its id where the function itself no longer lists its type
};

/// Whether a function is one.
bool has_vendor_vfio(const HostFs& host, const PciAddress& function);

/// Reads one. What cannot be read is the parent's problem.
VendorFunction read_vendor_function(const HostFs& host, const PciFunction& function);

/// The vGPU on a function, named by its id; none: it carries none. Errors: as the host's.
Result<std::optional<VgpuDevice>> read_vendor_device(const HostFs& host, VgpuFacts facts,
                                                     const PciFunction& function);

/// Which types can be created on a function at this moment.
Result<std::vector<CreatableType>> read_creatable_types(const HostFs& host, const PciAddress& function);

/// Where a type's number is written: EINVAL or EIO when it cannot be created, and 0 is read then. Writing 0
/// while a VM holds the function: EPERM.
std::filesystem::path current_type_path(const PciAddress& function);

/// Where the parameters of a function's plug-in are read and written: ENXIO without a vGPU, EPERM while a VM
/// holds the function. A write replaces all of them, a blank takes them away.
std::filesystem::path params_path(const PciAddress& function);

/// Where the place of a function's vGPU in the GPU's memory is read, and another one written: EINVAL unless
/// it is free and one of its type's, ENXIO without a vGPU or where the GPU has none to choose.
std::filesystem::path placement_path(const PciAddress& function);

}  // namespace ferry
