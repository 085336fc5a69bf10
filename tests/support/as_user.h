// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <grp.h>
#include <linux/capability.h>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ferry::test {

/// This process as another user while it lasts, without the capabilities of root. Only root can become one:
/// `GTEST_SKIP` elsewhere.
class AsUser {
 public:
  explicit AsUser(uid_t user) {
    if (::setegid(user) != 0 || ::seteuid(user) != 0) throw std::runtime_error("this process is not root");
  }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;
  AsUser(AsUser&&) = delete;
  AsUser& operator=(AsUser&&) = delete;
  ~AsUser() {
    if (::seteuid(0) != 0 || ::setegid(0) != 0) ::_exit(1);
    // The kernel hides a process in /proc once its user has changed. Later tests look at theirs.
    ::prctl(PR_SET_DUMPABLE, 1);
  }
};

/// Whether this holds in a child that is root as hostd is in the chart: with one supplementary group, and of
/// the capabilities that let root pass by a file's mode CAP_DAC_READ_SEARCH alone. `GTEST_SKIP` where this
/// process is not root.
inline bool holds_for_hostd_in_group(gid_t group, const std::function<bool()>& what) {
  const pid_t child = ::fork();
  if (child == 0) {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, 2> sets{};
    sets[0].effective = sets[0].permitted = 1U << CAP_DAC_READ_SEARCH;
    const bool bare = ::setgroups(1, &group) == 0 && ::syscall(SYS_capset, &header, sets.data()) == 0;
    ::_exit(bare && what() ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace ferry::test
