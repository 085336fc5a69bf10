// SPDX-License-Identifier: Apache-2.0
// var/lib/ferry/serving.json: whether Ferry's device plugin shall serve this node's kubelet. The agent writes
// it where another's device plugin does, for two that register the same resources displace each other; hostd
// reads it and says so in state.json, which the plugin reads. It outlives a reboot, as wanted.json does.
//
//   {"version": 1, "serve": false, "reason": "NVIDIA's sandbox-device-plugin serves this node", "by":
//   "agent"}
//
// Without the file the plugin serves. One without `by` is a person's: the agent leaves it as it is.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// In the folder of wanted.json.
inline constexpr const char* kServingFileName = "serving.json";

/// The agent's. `stand_back`: why the plugin shall offer nothing.
std::string serving_file_text(std::string_view stand_back);

/// Why the plugin shall offer nothing, never empty then; empty: it shall serve. Keys that are not of this are
/// passed over. Errc::malformed_host: no JSON object, another version, or a key that is missing or has
/// something else in it than it shall have.
Result<std::string> read_serving_file(std::string_view text);

/// Whether the agent has written it, whatever else it says.
bool is_of_the_agent(std::string_view serving_file);

}  // namespace ferry
