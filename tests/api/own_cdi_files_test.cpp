// SPDX-License-Identifier: Apache-2.0
#include "api/own_cdi_files.h"

#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ferry::api {
namespace {

/// A file as `ferry plugin` writes it.
const std::string kOurs = std::string(kPluginCdiHead) +
                          "cdiVersion: \"0.5.0\"\nkind: nvidia.com/pgpu\ndevices:\n- name: \"1\"\n"
                          "  containerEdits:\n    deviceNodes:\n    - path: /dev/vfio/1\n";

std::string with_edits(const std::string& edits) {
  return "cdiVersion: 0.6.0\nkind: a.b/c.d\ndevices: [{name: x, containerEdits: {" + edits + "}}]\n";
}

struct Row {
  const char* name;
  std::string text;
  const char* fault;  ///< "": as Ferry writes it
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}

class OwnCdiFile : public testing::TestWithParam<Row> {};

TEST_P(OwnCdiFile, IsJudged) {
  const auto checked = check_own_cdi_file({.file = "f", .text = GetParam().text});
  EXPECT_EQ(checked ? "" : checked.error().message, GetParam().fault);
}

std::vector<Row> rows() {
  return {
      Row{"the plugins", kOurs, ""},
      Row{"all that Ferry writes",
          with_edits("env: [A=b], mounts: [{hostPath: /a, containerPath: /b, options: [ro]}], "
                     "deviceNodes: [{path: /d, fileMode: 438}]"),
          ""},
      Row{"a hook", with_edits("hooks: [{hookName: prestart, path: /h}]"),
          "f:3: containerEdits.hooks: unknown key"},
      Row{"additional groups", with_edits("additionalGids: [44]"),
          "f:3: containerEdits.additionalGids: unknown key"},
      Row{"a later version", "cdiVersion: 1.0.0\nkind: aa/bb\n", "f:1: cdiVersion: is not 0.5.0 or 0.6.0"},
      Row{"no version", "kind: aa/bb\n", "f:1: cdiVersion: is not 0.5.0 or 0.6.0"},
      Row{"no class", "cdiVersion: 0.5.0\nkind: nvidia.com\n", "f:2: kind: is not VENDOR/CLASS"},
      Row{"no devices", "cdiVersion: 0.5.0\nkind: aa/bb\n", "f:1: devices: has no device"},
      Row{"a device without edits", "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: [{name: x}]\n",
          "f:3: devices: has no containerEdits"},
      Row{"a device without a name", "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: [{containerEdits: {}}]\n",
          "f:3: devices: has no name"},
      Row{"a device twice",
          "cdiVersion: 0.6.0\nkind: aa/bb\ndevices:\n- {name: x, containerEdits: {env: [A=b]}}\n"
          "- {name: x, containerEdits: {env: [A=b]}}\n",
          "f:5: devices: has the name x twice"},
      Row{"a device that is a word", "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: [x]\n",
          "f:3: devices: is the string 'x' and no map"},
      Row{"a node without a path", with_edits("deviceNodes: [{fileMode: 1}]"),
          "f:3: deviceNodes: path is no absolute path"},
      Row{"a mount without a path", with_edits("mounts: [{hostPath: /h}]"),
          "f:3: mounts: containerPath is no absolute path"},
      Row{"a key twice", "cdiVersion: 0.6.0\nkind: aa/bb\nkind: aa/bb\n",
          "f:3: kind: the key stands twice, first at f:2"},
      Row{"a list", "- a\n", "f:1: is a list and no map"},
  };
}

INSTANTIATE_TEST_SUITE_P(Table, OwnCdiFile, testing::ValuesIn(rows()), [](const auto& row) {
  std::string name = row.param.name;
  std::erase(name, ' ');
  return name;
});

TEST(OwnCdiFiles, AreNoFilesOfOtherPrograms) {
  EXPECT_TRUE(is_own_cdi_file("nvidia.com-pgpu.yaml", kOurs));
  EXPECT_TRUE(is_own_cdi_file("gpu-ferry.io-claim_u.json", "a: [\n"));
  EXPECT_TRUE(is_own_cdi_file("gpu-ferry.io_metadata_u_card.json", ""));
  EXPECT_FALSE(is_own_cdi_file("nvidia.yaml", "cdiVersion: 1.0.0\n"));
  EXPECT_FALSE(is_own_cdi_file("nvidia.com-pgpu.yaml.swp", kOurs));
  EXPECT_FALSE(is_own_cdi_file("other.json", "a: [\n"));
}

}  // namespace
}  // namespace ferry::api
