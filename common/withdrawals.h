// SPDX-License-Identifier: Apache-2.0
// What the device plugin reads of run/ferry/state.json: the devices that shall not be offered to the kubelet
// now, because they are about to become something else, and whether anything shall (common/serving_file.h).
// The whole file is host/state_file.h's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry {

struct Withdrawal {
  std::string id;      ///< what sysfs calls it: the address of a function, a mediated device's UUID
  std::string reason;  ///< for people
  bool operator==(const Withdrawal&) const = default;
};

struct Withdrawals {
  std::uint64_t generation = 0;  ///< of the file; told back in offered.json once all of it is done
  std::vector<Withdrawal> devices;
  std::string stand_back = {};  ///< why nothing shall be offered, whatever it is; empty: it may be
  bool operator==(const Withdrawals&) const = default;
};

/// Keys that are not of this are passed over. Errc::malformed_host: no JSON object, another version, or a key
/// with something else in it than it shall have.
Result<Withdrawals> read_withdrawals(std::string_view state_file);

}  // namespace ferry
