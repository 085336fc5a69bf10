// SPDX-License-Identifier: Apache-2.0
// Our policy file, version v2, read strictly: what a profile of NVIDIA's (v1) says, with a mode for each
// item.
//
//   version: v2
//   release: [nvidia-dcgm]              # optional; who may be asked to let go of GPUs for a move
//   foreign: keep                       # optional; keep or take: mediated devices that Ferry has not made
//   policies:
//     NAME:
//     - devices: all                    # or a list of GPU numbers
//       mode: passthrough               # host, passthrough or vgpu
//     - model: "*L40S*"                 # GPUs by name, address, numa-node, vendor, device-filter
//       mode: vgpu
//       vgpu-devices: {"L40S-12Q": 4}   # with mode vgpu, and only there; so mixed-sizes, vgpu-params
//
// `release` and `foreign` count for all policies of the file; `release` beside nvidia-persistenced, [none]:
// not even that. Of several items that match a GPU the last one holds, as in v1. A GPU that none matches is
// left as it is. docs/policy.md describes all of it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "common/config_reader.h"
#include "common/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry {

/// Reads all policies of a text. A v1 profile is a policy in which every item has the mode vgpu. Any fault is
/// Errc::invalid_config, "file:line: key: what". Leniently a v1 profile alone is read: a v2 file has no other
/// program to agree with.
Result<PolicyFile> read_policies(const ConfigText& source, Reading how = Reading::strict);

/// The named policy; without a name the only one. Errc::invalid_config lists the names there are.
Result<Policy> select_policy(const PolicyFile& file, const std::optional<std::string>& name);

}  // namespace ferry
