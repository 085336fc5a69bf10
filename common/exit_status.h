// SPDX-License-Identifier: Apache-2.0
// Exit statuses that scripts rely on.
#pragma once

#include <string_view>

#include "common/result.h"

namespace ferry {

enum class ExitStatus {
  done = 0,     ///< done, or nothing to do
  failed = 1,   ///< tried and failed
  usage = 2,    ///< wrong usage or invalid configuration
  differs = 3,  ///< an `assert` found a difference
  refused = 4,  ///< nothing was written for that group: in use, or it cannot be bound as a whole
};

/// The only table from error codes to exit statuses; a code without an entry is `failed`.
ExitStatus exit_status_of(const Error& error) noexcept;

/// Prints an error of `program`, and its hint, to standard error. Returns exit_status_of() it.
ExitStatus print_error(std::string_view program, const Error& error);

/// The status for several devices: failed before refused before usage before differs. once_written() says why
/// `usage` comes after refused.
ExitStatus worse(ExitStatus a, ExitStatus b) noexcept;

/// The status of a command that has written something. `usage` promises that nothing was written, so it
/// becomes refused.
ExitStatus once_written(ExitStatus status) noexcept;

}  // namespace ferry
