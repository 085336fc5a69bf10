// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of whole binds and unbinds: results at a glance, and death in the middle of one.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "vfio/bind/rebind_apply.h"

namespace ferry::test {

inline std::vector<vfio::RebindResult::Status> statuses(const vfio::RebindOutcome& outcome) {
  std::vector<vfio::RebindResult::Status> out;
  out.reserve(outcome.results.size());
  for (const vfio::RebindResult& result : outcome.results) out.push_back(result.status);
  return out;
}

/// Does `act` in a child, on a FakeKernel whose tree outlives it: whether the child died of die_at_change()
/// rather than came to its end.
template <typename Act>
bool dies(Act act) {
  const pid_t child = ::fork();
  if (child == 0) {
    act();
    ::_exit(EXIT_FAILURE);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

/// How many changes apply() makes on a new `Host`, which has a FakeKernel `kernel`.
template <typename Host, typename... Arguments>
std::size_t changes_of_an_undisturbed_run(Arguments... arguments) {
  Host host(arguments...);
  host.apply();
  return host.kernel.changes().size();
}

/// Has apply() die before each of its changes on a new Host in turn, and run again in either direction
/// without an error; what is to be true of the host then says `settled(host, direction)`.
template <typename Host, typename Settled, typename... Arguments>
void die_at_every_change(Settled settled, Arguments... arguments) {
  const std::size_t count = changes_of_an_undisturbed_run<Host>(arguments...);
  for (const vfio::Direction next : {vfio::Direction::to_vfio, vfio::Direction::back}) {
    for (std::size_t n = 1; n <= count; ++n) {
      SCOPED_TRACE(n);
      Host host(arguments...);
      ASSERT_TRUE(dies([&] {
        host.kernel.die_at_change(n);
        (void)host.apply();
      }));
      EXPECT_THAT(host.apply(next).errors, testing::IsEmpty());
      settled(host, next);
    }
  }
}

}  // namespace ferry::test
