// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <sys/resource.h>

namespace ferry {

/// The descriptor limit of this process; if getrlimit(2) fails, the number that every system permits.
inline std::size_t descriptor_limit() {
  constexpr std::size_t kEverywhere = 20;  // _POSIX_OPEN_MAX
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kEverywhere;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<std::size_t>::max() : limit.rlim_cur;
}

/// Raises the soft limit to the hard limit: the soft one is low for programs that use select(2).
inline void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  // On failure the limit stays, and opening files reports the lack.
  [[maybe_unused]] const int raised = ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ferry
