// SPDX-License-Identifier: Apache-2.0
#include "common/cdi_registry.h"

#include <array>
#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::array<std::filesystem::path, 2> kDirectories = {"etc/cdi", "var/run/cdi"};

/// As `ferry plugin` writes it.
constexpr const char* kOurs =
    "cdiVersion: \"0.5.0\"\nkind: nvidia.com/pgpu\ndevices:\n- name: \"1\"\n  containerEdits:\n    "
    "deviceNodes:\n"
    "    - path: /dev/vfio/1\n";

std::string with_edits(const std::string& edits) {
  return "cdiVersion: 0.6.0\nkind: a.b/c.d\ndevices: [{name: x, containerEdits: {" + edits + "}}]\n";
}

struct Row {
  const char* name;
  std::string text;
  const char* what;  ///< "": Kata's library takes it
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}

class CdiSpecifications : public testing::TestWithParam<Row> {};

TEST_P(CdiSpecifications, AreJudgedAsKatasLibraryDoes) {
  const test::ScratchDirectory scratch;
  scratch.file("etc/cdi/other.yaml", GetParam().text);
  const CdiRegistry registry = read_cdi_registry(HostFs(scratch.path()), kDirectories);
  EXPECT_EQ(registry.files, 1U);
  std::string what;
  for (const CdiFault& fault : registry.faults) what += fault.what;
  EXPECT_EQ(what, GetParam().what);
}

const std::string kNode = "deviceNodes: [{path: /dev/x}]";

INSTANTIATE_TEST_SUITE_P(
    Table, CdiSpecifications,
    testing::Values(
        Row{"ours", kOurs, ""},
        Row{"everything",
            with_edits("env: [A=b], hooks: [{hookName: prestart, path: /h, args: [x], "
                       "env: [], timeout: 1}], mounts: [{hostPath: /a, containerPath: "
                       "/b, type: bind, options: [ro]}], deviceNodes: [{path: /d, "
                       "hostPath: /e, type: c, major: 1, minor: 2, fileMode: 438, "
                       "permissions: rwm, uid: 0, gid: 0}]"),
            ""},
        Row{"json",
            R"({"cdiVersion": "v0.3.0", "kind": "aa/bb", "devices": [{"Name": "x", "containerEdits": {"env": ["A=b"]}}]})",
            ""},
        Row{"no devices", "cdiVersion: 0.3.0\nkind: aa/bb\n", ""},
        Row{"additional groups", with_edits("additionalGids: [44], " + kNode),
            "line 3: unknown field \"additionalGids\" in containerEdits"},
        Row{"additional groups of all devices",
            "cdiVersion: 0.7.0\nkind: aa/bb\ncontainerEdits: {additionalGids: [1]}\n",
            "line 3: unknown field \"additionalGids\" in containerEdits"},
        Row{"a later version", "cdiVersion: 1.0.0\nkind: aa/bb\n",
            "line 1: cdiVersion is \"1.0.0\", and Kata's library takes 0.3.0 to 0.6.0"},
        Row{"an early version", "cdiVersion: 0.2.0\nkind: aa/bb\n",
            "line 1: cdiVersion is \"0.2.0\", and Kata's library takes 0.3.0 to 0.6.0"},
        Row{"a vendor of one letter", "cdiVersion: 0.3.0\nkind: a/bb\n",
            "line 2: kind is \"a/bb\", and has to be VENDOR/CLASS, of two letters or more each"},
        Row{"no version", "kind: aa/bb\n",
            "line 1: cdiVersion is \"\", and Kata's library takes 0.3.0 to 0.6.0"},
        Row{"a name that needs a version",
            "cdiVersion: 0.4.0\nkind: aa/bb\ndevices: [{name: \"1\", containerEdits: {" + kNode + "}}]\n",
            "line 1: cdiVersion is 0.4.0, and what is said needs 0.5.0"},
        Row{"a class that needs a version", "cdiVersion: 0.5.0\nkind: aa/bb.cc\n",
            "line 1: cdiVersion is 0.5.0, and what is said needs 0.6.0"},
        Row{"no class", "cdiVersion: 0.5.0\nkind: nvidia.com\n",
            "line 2: kind is \"nvidia.com\", and has to be VENDOR/CLASS, of two letters or more each"},
        Row{"a device without edits", with_edits(""), "line 3: device \"x\" has no containerEdits"},
        Row{"a device twice",
            "cdiVersion: 0.6.0\nkind: aa/bb\ndevices:\n- {name: x, containerEdits: {env: [A=b]}}\n- {name: "
            "x, "
            "containerEdits: {env: [A=b]}}\n",
            "line 5: device \"x\" is there twice"},
        Row{"a name with a blank",
            "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: [{name: x y, containerEdits: {env: [A=b]}}]\n",
            "line 3: device \"x y\" has a name that CDI does not take"},
        Row{"a variable without a value", with_edits("env: [A]"),
            "line 3: device \"x\": env has \"A\", which is no NAME=VALUE"},
        Row{"a node without a path", with_edits("deviceNodes: [{type: c}]"),
            "line 3: device \"x\": a device node has no path"},
        Row{"a node of no type", with_edits("deviceNodes: [{path: /d, type: x}]"),
            "line 3: device \"x\": a device node is of type \"x\""},
        Row{"odd permissions", with_edits("deviceNodes: [{path: /d, permissions: rx}]"),
            "line 3: device \"x\": a device node has permissions \"rx\""},
        Row{"no such hook", with_edits("hooks: [{hookName: x, path: /h}]"),
            "line 3: device \"x\": there is no hook \"x\""},
        Row{"a mount without a path", with_edits("mounts: [{hostPath: /h}]"),
            "line 3: device \"x\": a mount has no containerPath"},
        Row{"a list as a name", "cdiVersion: 0.6.0\nkind: [a]\n", "line 2: kind has to be a plain value"},
        Row{"a device that is a word", "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: [x]\n",
            "line 3: a device has to be a map"}),
    [](const auto& row) {
      std::string name = row.param.name;
      std::erase(name, ' ');
      return name;
    });

TEST(CdiRegistries, AreRefusedForOneFileOfAnyProgram) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  EXPECT_THAT(read_cdi_registry(host, kDirectories).faults, IsEmpty()) << "there is no directory";
  scratch.file("var/run/cdi/nvidia.com-pgpu.yaml", kOurs);
  scratch.file("etc/cdi/notes.txt", "a: [\n");
  scratch.directory("etc/cdi/folder.yaml");
  EXPECT_THAT(read_cdi_registry(host, kDirectories).faults, IsEmpty());
  // The later directory counts more, and that is no conflict.
  scratch.file("etc/cdi/same.yaml", kOurs);
  EXPECT_THAT(read_cdi_registry(host, kDirectories).faults, IsEmpty());
  scratch.file("var/run/cdi/other.json", kOurs);
  EXPECT_THAT(read_cdi_registry(host, kDirectories).faults,
              ElementsAre(CdiFault{.file = "/var/run/cdi/other.json",
                                   .what = "nvidia.com/pgpu=1 is in /var/run/cdi/nvidia.com-pgpu.yaml too"}));
  scratch.file("var/run/cdi/other.json", "a: [\n");
  scratch.link("etc/cdi/nowhere.json", "/none");
  const auto broken = read_cdi_registry(host, kDirectories);
  ASSERT_EQ(broken.faults.size(), 2U);
  EXPECT_EQ(broken.faults[0].file, "/etc/cdi/nowhere.json");
  EXPECT_EQ(broken.faults[1].file, "/var/run/cdi/other.json");
  EXPECT_THAT(broken.faults[1].what, testing::HasSubstr("not readable as YAML"));
  EXPECT_EQ(broken.files, 4U);
}

TEST(CdiRegistries, HaveAStampThatChangesWithEachFile) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  EXPECT_EQ(cdi_registry_stamp(host, kDirectories), "");
  scratch.file("etc/cdi/a.yaml", kOurs);
  const std::string one = cdi_registry_stamp(host, kDirectories);
  EXPECT_NE(one, "");
  EXPECT_EQ(cdi_registry_stamp(host, kDirectories), one);
  scratch.file("etc/cdi/a.yaml", "another size");
  EXPECT_NE(cdi_registry_stamp(host, kDirectories), one);
}

}  // namespace
}  // namespace ferry
