// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/result.h"

namespace ferry {

/// True: this process or the system had no descriptor or memory left. A later try may succeed, and the error
/// says nothing about its object.
inline bool lacks_means(const Error& error) {
  return error.code == std::errc::too_many_files_open ||
         error.code == std::errc::too_many_files_open_in_system || error.code == std::errc::not_enough_memory;
}

}  // namespace ferry
