// SPDX-License-Identifier: Apache-2.0
// Ferry's policy file, version v2, read strictly: the content of NVIDIA's profile (v1), with a mode per item.
//
//   version: v2
//   release: [nvidia-dcgm]              # optional; services that may be quiesced for a change
//   foreign: keep                       # optional; keep or take: mediated devices that Ferry has not made
//   registers: auto                     # optional; auto, all or off: GPUs whose registers hostd reads
//   policies:
//     NAME:
//     - devices: all                    # or a list of GPU numbers
//       mode: passthrough               # host, passthrough or vgpu
//     - model: "*L40S*"                 # GPUs by name, address, numa-node, vendor, device-filter
//       mode: vgpu
//       vgpu-devices: {"L40S-12Q": 4}   # with mode vgpu, and only there; so vgpu-params
//     - devices: [7]
//       allocation: dra                 # for ResourceClaims, without a mode; default: device-plugin
//       allow: [whole, "L40S-*Q"]       # with allocation dra, and only there; default: whole and all types
//       mixed-sizes: true               # also with allocation dra
//
// `release`, `foreign` and `registers` apply to all policies of the file. `release` adds to
// nvidia-persistenced; [none] excludes even that. If several items match a GPU, the last one is in effect, as
// in v1. A GPU that no item matches is left as it is. docs/policy.md describes the format.
#pragma once

#include <optional>
#include <string>

#include "common/config/config_reader.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry::policy {

/// A v1 profile as a policy: every item has the mode vgpu.
Policy policy_of(const vgpu::Profile& profile);

/// Reads all policies of a text, policy_of() the profiles of a v1 text. Any fault is
/// Errc::invalid_config, "file:line: key: fault". Reading::lenient is for v1 profiles alone: no other program
/// reads v2 files.
Result<PolicyFile> read_policies(const ConfigText& source, Reading how = Reading::strict);

/// The named policy; without a name the only one. Errc::invalid_config lists the names there are.
Result<Policy> select_policy(const PolicyFile& file, const std::optional<std::string>& name);

}  // namespace ferry::policy
