// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "hostfs/stuck_writes.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

// First /proc/PID/stat of process 700, then a record file.
void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static const HostFs host(tree.path());
  constexpr const char* kSpace = "pid:[4026531836]";
  const auto [stat, record] = first_line(text);
  tree.file("proc/sys/kernel/random/boot_id", "b\n");
  tree.file("proc/700/stat", stat);
  tree.link("proc/1/ns/pid", kSpace);
  tree.file("run/ferry/stuck-writes/700.json", record);
  const auto json = nlohmann::json::parse(record, nullptr, false);
  const bool of_this_proc =
      json.is_object() && json.contains("pid_namespace") && json["pid_namespace"] == kSpace;
  const auto stuck = stuck_writes(host);
  require(stuck.has_value(), "a strange record is passed over");
  for (const StuckWrite& write : *stuck) {
    require(write.pid == 700 || !of_this_proc, "of /proc's namespace only a process that is there is stuck");
    require(write.value.empty() || concerns(write, write.value), "a write concerns what it names");
  }
}
