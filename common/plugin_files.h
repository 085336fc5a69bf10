// SPDX-License-Identifier: Apache-2.0
// Files that the device plugin, hostd and the agent exchange.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry {

// Files by which other processes see `ferry plugin`, relative to the host's root. The plugin writes to this
// folder alone: hostd's records lie beside it, and a plugin that is taken over must not plant one.

/// Advertised resources and allocations (kubevirt-plugin/advertised_file.h). Outlives its writer.
inline constexpr const char* kAdvertisedFile = "run/ferry/plugin/advertised.json";
/// File lock of a running plugin (LivenessLock).
inline constexpr const char* kPluginLiveness = "run/ferry/plugin/plugin.lock";

// var/lib/ferry/serving.json: whether Ferry's device plugin serves this node's kubelet. The agent writes the
// file where another device plugin does, since two that register the same resources displace each other.
// hostd reads it and reports it in status.json, which the plugin reads. The file outlives a reboot, as
// desired.json does.
//
//   {"version": 1, "serve": false, "reason": "NVIDIA's sandbox-device-plugin serves this node", "by":
//   "agent"}
//
// Without the file the plugin serves. A file without `by` is a person's, and the agent leaves it as it is.

/// The name of the file, in the folder of desired.json.
inline constexpr const char* kServingFileName = "serving.json";

/// The agent's file. `standby`: why the plugin is on standby.
std::string serving_file_text(std::string_view standby);

/// Why the plugin is on standby, never empty then; empty: it serves. Unknown keys are ignored.
/// Errc::malformed_host: not a JSON object, another version, or a key that is missing or of the wrong type.
Result<std::string> read_serving_file(std::string_view text);

/// True: the agent has written the file, whatever else is in it.
bool is_of_the_agent(std::string_view serving_file);

// The device plugin's part of run/ferry/status.json. It has the devices that the plugin must not advertise
// now, since they are about to change, and whether it is on standby (kServingFileName).
// host/status_file.h has the whole file.

struct Withdrawal {
  std::string id;      ///< its name in sysfs: the address of a function, a mediated device's UUID
  std::string reason;  ///< for people
  bool operator==(const Withdrawal&) const = default;
};

struct Withdrawals {
  std::uint64_t generation = 0;  ///< the file's; repeated in advertised.json once all is done
  std::vector<Withdrawal> devices;
  std::string standby = {};  ///< why the plugin is on standby; empty: it serves
  bool operator==(const Withdrawals&) const = default;
};

/// Unknown keys are ignored. Errc::malformed_host: not a JSON object, another version, or a key of the wrong
/// type.
Result<Withdrawals> read_withdrawals(std::string_view status_file);

}  // namespace ferry
