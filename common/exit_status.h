// SPDX-License-Identifier: Apache-2.0
// The exit statuses that scripts rely on.
#pragma once

#include "common/result.h"

namespace ferry {

enum class ExitStatus {
  done = 0,     ///< done, or already so
  failed = 1,   ///< tried and failed
  usage = 2,    ///< wrong usage or invalid configuration
  differs = 3,  ///< an `assert` found a difference
  refused = 4,  ///< nothing was written for that group: in use, or it cannot be moved whole
};

/// The one table from error codes to exit statuses; whatever is not named there is `failed`.
ExitStatus exit_status_of(const Error& error) noexcept;

/// Of several devices the worst counts: failed, then refused, then differs. `usage` comes after refused: see
/// once_written().
ExitStatus worse(ExitStatus a, ExitStatus b) noexcept;

/// The status of a command that has written something: `usage` is told only where nothing was, so what one
/// device cannot have while another got it counts as refused.
ExitStatus once_written(ExitStatus status) noexcept;

}  // namespace ferry
