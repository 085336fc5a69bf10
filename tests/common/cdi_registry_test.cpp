// SPDX-License-Identifier: Apache-2.0
#include "hostfs/cdi_registry.h"

#include <array>
#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/kata_cdi_check.h"
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

std::vector<Row> rows() {
  return {
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
          "line 1: cdiVersion is 0.4.0, and the file needs 0.5.0"},
      Row{"a class that needs a version", "cdiVersion: 0.5.0\nkind: aa/bb.cc\n",
          "line 1: cdiVersion is 0.5.0, and the file needs 0.6.0"},
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
          "line 3: a device has to be a map"},
      Row{"two documents", std::string("---\n") + kOurs + "---\nkind: [\n", ""},
      Row{"a field twice, in two spellings", "Kind: a\ncdiVersion: 0.6.0\nkind: aa/bb\n", ""},
      Row{"a key twice", "cdiVersion: 0.6.0\nkind: aa/bb\nkind: aa/bb\n",
          "line 3: kind: the key stands twice, first at /etc/cdi/other.yaml:2"},
      Row{"merged keys",
          "cdiVersion: 0.6.0\nkind: aa/bb\ndevices:\n- {name: x, containerEdits: &e {env: [A=b]}}\n"
          "- {name: y, containerEdits: {<<: *e}}\n",
          ""},
      Row{"json with tabs", "{\n\t\"cdiVersion\": \"0.6.0\",\n\t\"kind\": \"aa/bb\"\n}\n", ""},
      Row{"lines that end as on Windows", "cdiVersion: 0.6.0\r\nkind: aa/bb\r\n", ""},
      Row{"numbers in place of texts",
          "cdiVersion: 0.6.0\nkind: aa/bb\nannotations: {a: 1, b: true}\ndevices: [{name: 1, containerEdits: "
          "{mounts: [{hostPath: 1, containerPath: 2, options: [1, ~]}]}}]\n",
          ""},
      Row{"modes in all bases",
          with_edits("deviceNodes: [{path: /a, fileMode: 0600}, {path: /b, fileMode: 0o600}, {path: /c, "
                     "fileMode: 0x180}, {path: /d, fileMode: 384.0}, {path: /e, fileMode: 1_0}, {path: /f, "
                     "fileMode: 08}, {path: /g, major: -1}]"),
          ""},
      Row{"a mode in quotes", with_edits("deviceNodes: [{path: /a, fileMode: \"384\"}]"),
          "line 3: fileMode is the string '384', and has to be a whole number from 0 to 4294967295"},
      Row{"a mode below zero", with_edits("deviceNodes: [{path: /a, fileMode: -1}]"),
          "line 3: fileMode is -1, and has to be a whole number from 0 to 4294967295"},
      Row{"a user that is a word", with_edits("deviceNodes: [{path: /a, uid: root}]"),
          "line 3: uid is the string 'root', and has to be a whole number from 0 to 4294967295"},
      Row{"a major of a half", with_edits("deviceNodes: [{path: /a, major: 1.5}]"),
          "line 3: major is 1.5, and has to be a whole number"},
      Row{"a timeout that is a word", with_edits("hooks: [{hookName: prestart, path: /h, timeout: 5s}]"),
          "line 3: timeout is the string '5s', and has to be a whole number"},
      Row{"annotations in a map", "cdiVersion: 0.6.0\nkind: aa/bb\nannotations: {a: {b: c}}\n",
          "line 3: annotations has to be a map of plain values"},
      Row{"arguments in a list", with_edits("hooks: [{hookName: prestart, path: /h, args: [[a]]}]"),
          "line 3: args has to be a list of plain values"},
      Row{"a variable that is nothing", with_edits("env: [~]"),
          "line 3: device \"x\": env has \"\", which is no NAME=VALUE"},
      Row{"a device that is nothing", "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: [~]\n",
          "line 3: device \"\" has a name that CDI does not take"},
      Row{"a device node that is nothing", with_edits("deviceNodes: [~]"),
          "line 3: device \"x\": a device node has no path"},
      Row{"a map in place of devices", "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: {}\n",
          "line 3: devices has to be a list"},
      Row{"a word in place of edits", "cdiVersion: 0.6.0\nkind: aa/bb\ncontainerEdits: x\n",
          "line 3: containerEdits has to be a map"},
      Row{"a class with a slash", "cdiVersion: 0.6.0\nkind: aa/bb/cc\n",
          "line 2: kind is \"aa/bb/cc\", and has to be VENDOR/CLASS, of two letters or more each"},
      Row{"a list", "- a\n", "line 1: the specification has to be a map"},
      Row{"nothing", "", "line 1: cdiVersion is \"\", and Kata's library takes 0.3.0 to 0.6.0"},
      Row{"a version with a v twice", "cdiVersion: vv0.6.0\nkind: aa/bb\n",
          "line 1: cdiVersion is \"vv0.6.0\", and Kata's library takes 0.3.0 to 0.6.0"},
      Row{"a name that ends with a dot",
          "cdiVersion: 0.6.0\nkind: aa/bb\ndevices: [{name: x., "
          "containerEdits: {env: [A=b]}}]\n",
          "line 3: device \"x.\" has a name that CDI does not take"},
      Row{"annotations that need a version", "cdiVersion: 0.5.0\nkind: aa/bb\nannotations: {a: b}\n",
          "line 1: cdiVersion is 0.5.0, and the file needs 0.6.0"},
      Row{"a path on the host that needs a version",
          "cdiVersion: 0.4.0\nkind: aa/bb\ncontainerEdits: {deviceNodes: [{path: /a, hostPath: /b}]}\n",
          "line 1: cdiVersion is 0.4.0, and the file needs 0.5.0"},
      Row{"a type of mount that needs a version",
          "cdiVersion: 0.3.0\nkind: aa/bb\ncontainerEdits: {mounts: [{hostPath: /a, containerPath: /b, type: "
          "bind}]}\n",
          "line 1: cdiVersion is 0.3.0, and the file needs 0.4.0"},
      Row{"edits of all devices that are wrong",
          "cdiVersion: 0.6.0\nkind: aa/bb\ncontainerEdits: {env: [A]}\n",
          "line 3: the specification: env has \"A\", which is no NAME=VALUE"},
      Row{"a comment before the document", "# made by x\n---\ncdiVersion: 0.6.0\nkind: aa/bb\n", ""}};
}

INSTANTIATE_TEST_SUITE_P(Table, CdiSpecifications, testing::ValuesIn(rows()), [](const auto& row) {
  std::string name = row.param.name;
  std::erase_if(name, [](char c) { return c == ' ' || c == ','; });
  return name;
});

/// The same files, read by the library itself.
TEST(CdiSpecificationsOfTheLibrary, AreThoseThatWeTake) {
  const auto program = test::kata_cdi_check();
  if (!program) GTEST_SKIP() << test::kNoKataCdiCheck;
  const test::ScratchDirectory scratch;
  std::vector<std::string> folders;
  const auto all = rows();
  for (const Row& row : all) {
    const std::string folder = std::to_string(folders.size());
    scratch.file(folder + "/other.yaml", row.text);
    folders.push_back((scratch.path() / folder).string());
  }
  const auto answers = test::ask_kata_cdi_check(*program, folders);
  ASSERT_EQ(answers.size(), folders.size());
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const Row& row = all.at(i);
    EXPECT_EQ(answers[i].good, std::string_view(row.what).empty()) << row.name << ": " << answers[i].text;
  }
}

TEST(CdiRegistriesOfTheLibrary, AreThoseThatWeTake) {
  const auto program = test::kata_cdi_check();
  if (!program) GTEST_SKIP() << test::kNoKataCdiCheck;
  struct Case {
    const char* name;
    std::function<void(const test::ScratchDirectory&)> make;
  };
  const std::vector<Case> cases = {
      {"no directory", [](const auto&) {}},
      {"one name in two directories",
       [](const auto& host) {
         host.file("etc/cdi/a.yaml", kOurs);
         host.file("var/run/cdi/a.yaml", kOurs);
       }},
      {"one name in one directory twice",
       [](const auto& host) {
         host.file("etc/cdi/a.yaml", kOurs);
         host.file("etc/cdi/b.json", kOurs);
       }},
      {"files of other suffixes, and folders",
       [](const auto& host) {
         host.file("etc/cdi/a.yml", "[");
         host.file("etc/cdi/b.txt", "[");
         host.directory("etc/cdi/c.yaml");
         host.file("etc/cdi/below/d.yaml", "[");
       }},
      {"a link to nothing", [](const auto& host) { host.link("etc/cdi/a.yaml", "nowhere"); }},
      {"a link to a folder",
       [](const auto& host) {
         host.directory("etc/folder");
         host.link("etc/cdi/a.yaml", "../folder");
       }},
      {"a directory that is a link",
       [](const auto& host) {
         host.file("etc/other/a.yaml", "[");
         host.link("etc/cdi", "other");
       }},
  };
  for (const Case& row : cases) {
    const test::ScratchDirectory host;
    row.make(host);
    const std::string directories = fmt::format("{0}/etc/cdi:{0}/var/run/cdi", host.path().string());
    const auto answers = test::ask_kata_cdi_check(*program, {directories});
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].good, read_cdi_registry(HostFs(host.path()), kDirectories).faults.empty())
        << row.name << ": " << answers[0].text;
  }
}

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
