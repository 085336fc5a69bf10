// SPDX-License-Identifier: Apache-2.0
// var/lib/ferry/serving.json: whether Ferry's device plugin serves this node's kubelet. The agent writes the
// file where another device plugin does, since two that register the same resources displace each other.
// hostd reads it and reports it in state.json, which the plugin reads. The file outlives a reboot, as
// wanted.json does.
//
//   {"version": 1, "serve": false, "reason": "NVIDIA's sandbox-device-plugin serves this node", "by":
//   "agent"}
//
// Without the file the plugin serves. A file without `by` is a person's, and the agent leaves it as it is.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// The name of the file, in the folder of wanted.json.
inline constexpr const char* kServingFileName = "serving.json";

/// The agent's file. `stand_back`: why the plugin is on standby.
std::string serving_file_text(std::string_view stand_back);

/// Why the plugin is on standby, never empty then; empty: it serves. Unknown keys are ignored.
/// Errc::malformed_host: not a JSON object, another version, or a key that is missing or of the wrong type.
Result<std::string> read_serving_file(std::string_view text);

/// True: the agent has written the file, whatever else is in it.
bool is_of_the_agent(std::string_view serving_file);

}  // namespace ferry
