// SPDX-License-Identifier: Apache-2.0
// The file kServingFile says if Ferry's device plugin serves this node's kubelet. The agent writes it where
// another device plugin serves, since two that register the same resources displace each other. hostd reads
// it and reports it in the host status, which the plugin reads.
//
//   {"version": 1, "serve": false, "reason": "NVIDIA's sandbox-device-plugin serves this node", "by":
//   "agent"}
//
// Without the file the plugin serves. A file without `by` is a person's, and the agent leaves it as it is.
#pragma once

#include <string>
#include <string_view>

#include "api/files.h"
#include "common/result.h"

namespace ferry::api {

/// The agent's file. `standby`: why the plugin is on standby.
std::string serving_file_text(std::string_view standby);

/// Why the plugin is on standby, never empty then; empty: it serves. Unknown keys are ignored. `file`: its
/// path below the host's root, for errors.
/// Errc::malformed_host: not such a file, another version, or a key that is missing or has a wrong value.
Result<std::string> read_serving_file(std::string_view text, std::string_view file = kServingFile);

/// True: the agent has written the file, whatever else is in it.
bool is_of_the_agent(std::string_view serving_file);

}  // namespace ferry::api
