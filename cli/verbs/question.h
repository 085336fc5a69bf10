// SPDX-License-Identifier: Apache-2.0
// Questions to a person on a terminal, before a command changes every device that it can.
#pragma once

#include <set>
#include <string>

#include "common/result.h"

namespace ferry::cli {

/// True: standard input and standard error are terminals, so that a person can answer.
bool can_ask();

/// Prints "QUESTION [y/N] " to standard error and reads a line. Errc::refused: the answer is not yes.
Result<> ask(const std::string& question);

/// The devices that a change would concern, by address or UUID.
using AskedDevices = std::set<std::string>;

/// Errc::refused: not all of `now` are among those that the answer was about. `noun` is that of one: "vGPU".
Result<> check_answer(const AskedDevices& agreed, const AskedDevices& now, const std::string& noun);

}  // namespace ferry::cli
