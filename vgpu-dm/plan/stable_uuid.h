// SPDX-License-Identifier: Apache-2.0
// UUIDs that are the same after every reboot: name-based (RFC 4122 version 5) from the node, the parent, the
// type's name and a number.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "mdev/vgpu.h"

namespace ferry::vgpu {

/// Default identity of a node: its machine ID. Errc::unsupported when the host has none (an image before its
/// first boot). ABI: machine-id(5).
Result<std::string> node_identity(const HostFs& host);

/// The UUID of the `number`th vGPU, from 0, of a type on a parent.
mdev::VgpuId stable_uuid(std::string_view node, const vfio::PciAddress& parent, std::string_view short_name,
                         unsigned number);

/// The UUID of the vGPU that device `index` of the ResourceClaim with the UID `claim` is. A preparation that
/// is repeated makes no second vGPU, and our_number() of it is absent.
mdev::VgpuId claim_uuid(std::string_view claim, std::size_t index);

/// The number from which stable_uuid() made this vGPU's UUID; absent: Ferry did not make it on this node.
std::optional<unsigned> our_number(std::string_view node, const mdev::VgpuDevice& device);
/// True if our_number() finds a number: Ferry made the vGPU on this node.
bool is_ours(std::string_view node, const mdev::VgpuDevice& device);

}  // namespace ferry::vgpu
