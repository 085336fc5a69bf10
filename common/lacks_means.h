// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace ferry {

/// Whether this process or the system had no descriptor or memory left for it: the next try may go well, and
/// it says nothing of what was asked for.
inline bool lacks_means(const Error& error) {
  return error.code == std::errc::too_many_files_open ||
         error.code == std::errc::too_many_files_open_in_system || error.code == std::errc::not_enough_memory;
}

}  // namespace ferry
