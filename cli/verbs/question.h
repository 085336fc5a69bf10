// SPDX-License-Identifier: Apache-2.0
// Questions to a person on a terminal, before a command changes every device that it can.
#pragma once

#include <string>

#include "common/result.h"

namespace ferry::cli {

/// True: standard input and standard error are terminals, so that a person can answer.
bool can_ask();

/// Prints "QUESTION [y/N] " to standard error and reads a line. Errc::refused: the answer is not yes.
Result<> ask(const std::string& question);

/// The error of a change that would concern more devices than the answer was about. `now`: "5 vGPUs".
Error changed_since_question(const std::string& now);

}  // namespace ferry::cli
