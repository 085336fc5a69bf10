// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"
#include "vfio/quiesce/release.h"
#include "vfio/quiesce/stopped_services.h"

void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static HostFs host(tree.path());
  tree.file("proc/sys/kernel/random/boot_id", "b\n");
  tree.file("run/ferry/hostd/stopped-services.json", text);
  const auto record = vfio::read_service_record(host);
  if (!record)
    return require(record.error().code == Errc::malformed_host, "what cannot be read is said to be");
  for (const auto& [user, state] : record->services) {
    require(!vfio::runs_others(user.name), "nothing is started that is never stopped");
    require(user.kind != vfio::Releasable::Kind::module || user.name == vfio::kConsoleModule,
            "no other module is loaded");
  }
  require(vfio::write_service_record(host, record->services).has_value(), "what was read can be written");
  const auto again = vfio::read_service_record(host);
  require(again && again->services == record->services, "a record reads back as itself");
}
