// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <sys/resource.h>

namespace ferry {

/// How many descriptors this process may have. Where that cannot be asked, as many as every system permits.
inline std::size_t descriptor_limit() {
  constexpr std::size_t kEverywhere = 20;  // _POSIX_OPEN_MAX
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kEverywhere;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<std::size_t>::max() : limit.rlim_cur;
}

/// As many as it may permit itself: the soft limit is low for the sake of programs that use select(2).
inline void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  // Without it there are fewer, and whoever needs one is told so then.
  [[maybe_unused]] const int raised = ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ferry
