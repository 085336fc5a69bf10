// SPDX-License-Identifier: Apache-2.0
// The writes that create, change and remove a vGPU: only this file knows how the frameworks differ in them.
#pragma once

#include <cstdint>
#include <string>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry {

/// Creates a vGPU. A mediated device: EINVAL if the type no longer fits, EEXIST if the UUID is in use on the
/// host. Vendor-specific VFIO: EINVAL or EIO if the type no longer fits, EEXIST if the function has a vGPU by
/// now, which the driver would replace.
AttributeWrite creation_write(VgpuFramework framework, const PciAddress& parent, const std::string& type_id,
                              const VgpuId& id);

/// Removes a vGPU. While a VM uses it, the write may hang for a mediated device, and is EPERM otherwise.
AttributeWrite removal_write(VgpuFramework framework, const PciAddress& parent, const VgpuId& id);

/// Replaces all plug-in parameters of a vGPU; a blank clears them. EPERM while a VM uses the vGPU.
AttributeWrite params_write(VgpuFramework framework, const PciAddress& parent, const VgpuId& id,
                            const std::string& params);

/// Moves a vGPU within the GPU's memory. EINVAL: not free, or no placement of its type. ENXIO or ENOENT: the
/// GPU offers no choice. EPERM: a VM uses the vGPU.
AttributeWrite placement_write(VgpuFramework framework, const PciAddress& parent, const VgpuId& id,
                               std::uint32_t placement);

/// The number of vGPUs of a type that a parent can create now. Creating one on a virtual function changes the
/// number for all its siblings.
Result<std::uint32_t> available_now(const HostFs& host, VgpuFramework framework, const PciAddress& parent,
                                    const std::string& type_id);

}  // namespace ferry
