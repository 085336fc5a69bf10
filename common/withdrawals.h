// SPDX-License-Identifier: Apache-2.0
// The device plugin's part of run/ferry/state.json. It has the devices that the plugin must not advertise
// now, since they are about to change, and whether it is on standby (common/serving_file.h).
// host/state_file.h has the whole file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry {

struct Withdrawal {
  std::string id;      ///< its name in sysfs: the address of a function, a mediated device's UUID
  std::string reason;  ///< for people
  bool operator==(const Withdrawal&) const = default;
};

struct Withdrawals {
  std::uint64_t generation = 0;  ///< the file's; repeated in offered.json once all is done
  std::vector<Withdrawal> devices;
  std::string stand_back = {};  ///< why the plugin is on standby; empty: it serves
  bool operator==(const Withdrawals&) const = default;
};

/// Unknown keys are ignored. Errc::malformed_host: not a JSON object, another version, or a key of the wrong
/// type.
Result<Withdrawals> read_withdrawals(std::string_view state_file);

}  // namespace ferry
