// SPDX-License-Identifier: Apache-2.0
#include "mdev/mdev_bus.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

// One type as a driver shows it: its name, available_instances and its description, a line each.
void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static const HostFs host(tree.path());
  static const std::filesystem::path type =
      "sys/bus/pci/devices/0000:01:00.0/mdev_supported_types/nvidia-230";
  const auto [name, rest] = first_line(text);
  const auto [available, description] = first_line(rest);
  tree.directory("sys/class/mdev_bus/0000:01:00.0");
  tree.file(type / "name", name);
  tree.file(type / "available_instances", available);
  tree.file(type / "description", description);
  const auto bus = mdev::read_mdev_bus(host, mdev::StuckGpus());
  require(bus && bus->parents.size() == 1, "one bad type never ends the scan");
  const mdev::VgpuParent& parent = bus->parents.begin()->second;
  require(parent.types.size() == 1 || parent.problem, "a type is there or its trouble is reported");
  for (const mdev::VgpuType& read : parent.types) {
    require(!read.name.empty() && read.name.ends_with(read.short_name), "the short name ends the name");
    require(read.short_name.find(' ') == std::string::npos, "the short name is one word");
  }
}
