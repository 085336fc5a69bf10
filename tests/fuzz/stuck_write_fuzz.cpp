// SPDX-License-Identifier: Apache-2.0
#include "common/stuck_writes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

// First /proc/PID/stat of process 700, then a record file.
void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static const HostFs host(tree.path());
  const auto [stat, record] = first_line(text);
  tree.file("proc/sys/kernel/random/boot_id", "b\n");
  tree.file("proc/700/stat", stat);
  tree.file("run/ferry/stuck/700.json", record);
  const auto stuck = stuck_writes(host);
  require(stuck.has_value(), "a strange record is passed over");
  for (const StuckWrite& write : *stuck) {
    require(write.pid == 700, "only a process that is there is stuck");
    require(write.value.empty() || concerns(write, write.value), "a write concerns what it names");
  }
}
