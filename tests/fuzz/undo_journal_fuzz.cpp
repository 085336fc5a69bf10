// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"
#include "vfio/bind/undo_journal.h"

void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static HostFs host(tree.path());
  tree.file("proc/sys/kernel/random/boot_id", "b\n");
  tree.file("run/ferry/hostd/moves/5.json", text);
  const auto record = vfio::read_undo_journal(host);
  require(record.has_value(), "one record keeps no others from being read");
  if (const auto lost = record->unreadable.find(5); lost != record->unreadable.end())
    return require(lost->second.code == Errc::malformed_host, "what cannot be read is said to be");
  if (record->members.empty()) return;

  tree.remove("run/ferry/hostd/moves/5.json");
  require(vfio::write_undo_journal(host, 5, record->members).has_value(), "what was read can be written");
  const auto again = vfio::read_undo_journal(host);
  require(again && again->members == record->members, "a record reads back as itself");
}
