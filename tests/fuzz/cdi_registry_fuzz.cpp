// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>

#include "hostfs/cdi_registry.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/scratch_directory.h"

// Any program of the host writes CDI files, and hostd and the plugin read all of them.
void ferry::fuzz::one_input(std::string_view text) {
  static const test::ScratchDirectory tree;
  static const HostFs host(tree.path());
  static const std::array<std::filesystem::path, 1> kFolders = {"etc/cdi"};
  tree.remove("etc/cdi/b.json");
  tree.file("etc/cdi/a.yaml", text);
  const CdiRegistry one = read_cdi_registry(host, kFolders);
  require(one.files == 1 && one.faults.size() <= 1, "a file has one fault, its first");
  for (const CdiFault& fault : one.faults)
    require(fault.file == "/etc/cdi/a.yaml" && !fault.what.empty(), "a fault says where and why");
  tree.file("etc/cdi/b.json", text);
  const CdiRegistry two = read_cdi_registry(host, kFolders);
  require(two.files == 2, "each file is read");
  require(one.faults.empty() ? two.faults.size() <= 1 : two.faults.size() == 2,
          "a good file is refused for a device of another file at most");
}
