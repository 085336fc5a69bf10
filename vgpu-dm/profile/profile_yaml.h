// SPDX-License-Identifier: Apache-2.0
// The profile file of NVIDIA's vGPU device manager, version v1, read strictly.
//
//   version: v1
//   vgpu-configs:
//     NAME:
//     - device-filter: "0x26B910DE"        # optional; or a list
//       devices: all                       # or a list of indices
//       vgpu-devices: {"L40S-12Q": 4}      # may be {}
//
// NVIDIA's program accepts more. Refused here, since they never do the intended: duplicate keys, a second
// document, filters that do not parse (they match no GPU there), and two spellings of one type in one map. So
// are plain scalars that other YAML readers take for another value. Reading::lenient warns of all of them.
#pragma once

#include <optional>
#include <string>

#include "common/config/config_reader.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

/// Reads all profiles of a text. An empty document, or one with only a version, has none. Any fault is
/// Errc::invalid_config, "file:line: key: fault".
Result<ProfileFile> read_profiles(const ConfigText& source, Reading how = Reading::strict);

/// The named profile; without a name the only one. Errc::invalid_config lists the names there are.
Result<Profile> select_profile(const ProfileFile& file, const std::optional<std::string>& name);

}  // namespace ferry::vgpu
