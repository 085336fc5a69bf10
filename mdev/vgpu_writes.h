// SPDX-License-Identifier: Apache-2.0
// Which write makes a vGPU and which takes one away: the one place where the frameworks differ in that.
#pragma once

#include <cstdint>
#include <string>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry {

/// Makes a vGPU of a type on a parent. As a mediated device: EINVAL when the type no longer fits, EEXIST when
/// the UUID is in use anywhere on the host. Else EEXIST where the function carries a vGPU by now (the
/// driver would take that one away), EINVAL or EIO when the type no longer fits.
AttributeWrite creation_write(VgpuFramework framework, const PciAddress& parent, const std::string& type_id,
                              const VgpuId& id);

/// Takes a vGPU away. While a VM has it: as a mediated device the write may hang, else EPERM.
AttributeWrite removal_write(VgpuFramework framework, const PciAddress& parent, const VgpuId& id);

/// Sets the parameters of a vGPU's plug-in, all of them; a blank takes them away. EPERM while a VM has it.
AttributeWrite params_write(VgpuFramework framework, const PciAddress& parent, const VgpuId& id,
                            const std::string& params);

/// Moves a vGPU to another place in the GPU's memory. EINVAL unless that is free and one of its type's; ENXIO
/// or ENOENT where there is none to choose; EPERM while a VM has it.
AttributeWrite placement_write(VgpuFramework framework, const PciAddress& parent, const VgpuId& id,
                               std::uint32_t placement);

/// How many more of a type can be made on a parent at this moment: making one on a virtual function changes
/// that for all of its siblings.
Result<std::uint32_t> available_now(const HostFs& host, VgpuFramework framework, const PciAddress& parent,
                                    const std::string& type_id);

}  // namespace ferry
