// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>

#include "hostfs/in_flight_writes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

// What the file of a process that lives says of its act.
void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static HostFs host(tree.path());
  constexpr const char* kFile = "run/ferry/hostd/acts/700";
  tree.remove("run/ferry/stuck-writes");
  tree.file(kFile, std::string(text));
  const auto held = host.open(kFile, O_RDONLY);
  require(held && ::flock(held->get(), LOCK_EX) == 0, "the file is held");
  const auto done = wait_for_acts(host, std::chrono::milliseconds(0));
  require(done || done.error().code == Errc::stuck, "what is under way is stuck at most");
  const auto records = host.list("run/ferry/stuck-writes");
  const auto recorded = text.substr(0, text.find('\0'));
  const bool nothing = recorded.empty() || recorded.find('\n') == recorded.size() - 1;
  require(!done || nothing || (records && records->size() == 1), "an act under way is recorded");
}
