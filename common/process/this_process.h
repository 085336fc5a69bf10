// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <sys/resource.h>

namespace ferry {

using Environment = std::map<std::string, std::string>;

Environment process_environment();

/// Empty: the variable is not set.
std::string value_of(const Environment& environment, const char* name);

/// Hides this process's memory, environment and files in /proc from all but tracers of every process. Else
/// another container of the same user in the host's PID namespace could read the token that is mounted only
/// here. Started programs are not hidden. The process leaves no core dump.
void hide_process();

/// Frees memory that a waiting process does not need: pages of the program and its libraries, which are read
/// from disk again when touched, and free heap. A start touches ten times as much as serving does. Any thread
/// may call it at any time; it costs a fraction of a millisecond, and the next use of a page about a
/// microsecond.
void drop_startup_memory();

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
