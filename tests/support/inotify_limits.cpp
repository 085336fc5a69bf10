// SPDX-License-Identifier: Apache-2.0
#include "tests/support/inotify_limits.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

// Input of the functions below, which take no context.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
namespace {
std::atomic<bool> no_instance = false;
std::atomic<bool> no_watch = false;
}  // namespace
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// In place of the C library's.
extern "C" int inotify_init1(int flags) noexcept {
  if (!no_instance) return static_cast<int>(::syscall(SYS_inotify_init1, flags));
  errno = EMFILE;
  return -1;
}

/// In place of the C library's.
extern "C" int inotify_add_watch(int instance, const char* path, std::uint32_t mask) noexcept {
  if (!no_watch) return static_cast<int>(::syscall(SYS_inotify_add_watch, instance, path, mask));
  errno = ENOSPC;
  return -1;
}

namespace ferry::test {

NoMoreOf::NoMoreOf(Inotify what) {
  (what == Inotify::instance ? no_instance : no_watch) = true;
}

NoMoreOf::~NoMoreOf() {
  no_instance = false;
  no_watch = false;
}

}  // namespace ferry::test
