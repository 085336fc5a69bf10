// SPDX-License-Identifier: Apache-2.0
// The configuration of a trial, on a tree in place of the host. Real releases are in real_trial_test.cpp.
#include "kata-manager/runtimes/trial_configuration.h"

#include <string>

#include <gtest/gtest.h>

#include "kata-manager/toml/toml.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

class TrialConfiguration : public testing::Test {
 protected:
  TomlTable apart(const std::string& dump) const {
    return kept_apart(host, test::must(parse_toml("version = 2\n" + dump, "dump")), "/trial");
  }
  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(TrialConfiguration, HasTheGroupThatContainerdMayNotJoin) {
  scratch.file("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  scratch.file("sys/fs/cgroup/a/cgroup.procs", "");
  scratch.file("sys/fs/cgroup/a/cgroup.subtree_control", "\n");
  scratch.file("sys/fs/cgroup/parent/cgroup.procs", "");
  scratch.file("sys/fs/cgroup/parent/cgroup.subtree_control", "cpu memory\n");
  struct Row {
    const char* path;
    bool stays;
  };
  for (const Row& row : {Row{"", false}, Row{"/", false}, Row{"/a", false}, Row{"/parent", true},
                         Row{"/none", true}, Row{"a", true}, Row{"/a/", true}, Row{"/b/../a", true}}) {
    const auto out = apart(std::string("[cgroup]\npath = \"") + row.path + "\"\n");
    EXPECT_EQ(out.contains("cgroup"), row.stays) << row.path;
  }
  scratch.remove("sys/fs/cgroup/cgroup.controllers");
  EXPECT_FALSE(apart("[cgroup]\npath = \"/none\"\n").contains("cgroup")) << "version 1 makes it";
}

TEST_F(TrialConfiguration, HasItsFoldersAndSocketsInFerrysFolder) {
  const auto out = apart(R"(temp = "/var/tmp/c"
[metrics]
address = "127.0.0.1:1338"
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = ""
plugin_path = "/opt/nri/plugins"
[plugins."io.containerd.internal.v1.opt"]
path = ""
[plugins."io.containerd.content.v1.content"]
path = "/data/content"
more = ["/data/more"]
)");
  EXPECT_EQ(text_at(out, {"temp"}), "/trial/temp");
  EXPECT_EQ(text_at(out, {"metrics", "address"}), "127.0.0.1:0");
  const TomlTable& plugins = *out.at("plugins").table();
  EXPECT_EQ(plugins.at("io.containerd.nri.v1.nri"),
            (TomlValue{TomlTable{{"disable", {false}},
                                 {"socket_path", {std::string("/trial/nri.sock")}},
                                 {"plugin_path", {std::string("/trial/plugin_path")}},
                                 {"plugin_config_path", {std::string("/trial/plugin_config_path")}}}}));
  for (const char* id : {"io.containerd.internal.v1.opt", "io.containerd.content.v1.content"})
    EXPECT_EQ(plugins.at(id), (TomlValue{TomlTable{{"path", {std::string("/trial/") + id}}}}));
}

}  // namespace
}  // namespace ferry::kata
