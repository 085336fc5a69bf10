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

/// Of several devices the worst counts: failed, then refused, then differs. `usage` never meets the others:
/// it is found before anything is tried.
ExitStatus worse(ExitStatus a, ExitStatus b) noexcept;

}  // namespace ferry
