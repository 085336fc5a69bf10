// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include <gmock/gmock.h>

#include "kata-manager/configuration/kata_checks.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;

constexpr ContainerdRelease kOld{.major_number = 1, .minor_number = 6, .patch = 20};
constexpr ContainerdRelease kOne{.major_number = 1, .minor_number = 7, .patch = 27};
constexpr ContainerdRelease kTwo{.major_number = 2, .minor_number = 1, .patch = 0};

class CdiSetting : public testing::Test {
 protected:
  Check check(const std::optional<ContainerdRelease>& running = {}) const { return cdi_check(host, running); }
  std::string verdict(const std::optional<ContainerdRelease>& running = {}) const {
    return std::string(text(check(running).verdict));
  }
  void containerd_has(const std::string& text) const {
    scratch.file("run/containerd/containerd.sock", "");
    scratch.file("etc/containerd/config.toml", text);
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(CdiSetting, IsNotKnownWithoutAContainerRuntime) {
  EXPECT_EQ(verdict(), "unknown");
}

TEST_F(CdiSetting, IsAlwaysOnInCrio) {
  scratch.file("run/crio/crio.sock", "");
  scratch.file("etc/crio/crio.conf", "");
  EXPECT_EQ(verdict(), "pass");
}

TEST_F(CdiSetting, IsOnByDefaultSinceContainerd2) {
  scratch.file("run/containerd/containerd.sock", "");
  EXPECT_EQ(verdict(kTwo), "pass");
  EXPECT_EQ(verdict(kOne), "fail");
  EXPECT_EQ(verdict(kOld), "fail");
  EXPECT_EQ(verdict(), "warn");
  EXPECT_THAT(check().found, HasSubstr("not known which one runs"));
}

TEST_F(CdiSetting, IsReadFromContainerdsFiles) {
  containerd_has("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n");
  EXPECT_EQ(verdict(kOne), "pass");
  EXPECT_EQ(verdict(), "pass");
  containerd_has("version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\nenable_cdi = false\n");
  EXPECT_EQ(verdict(kTwo), "fail");
  EXPECT_THAT(check(kTwo).fix, HasSubstr("write enable_cdi = true to "
                                         "[plugins.\"io.containerd.cri.v1.runtime\"] of "
                                         "/etc/containerd/config.toml, and restart containerd"));
  containerd_has("version = 3\n");
  EXPECT_EQ(verdict(), "pass") << "containerd 1 does not start with such a file";
  containerd_has("version = [\n");
  EXPECT_EQ(verdict(kTwo), "unknown");
}

TEST_F(CdiSetting, NeedsTheFolderOfFerry) {
  containerd_has("version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\ncdi_spec_dirs = [\"/etc/cdi\"]\n");
  EXPECT_EQ(verdict(kTwo), "fail");
  EXPECT_THAT(check(kTwo).found, HasSubstr("lacks /var/run/cdi"));
  containerd_has(
      "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\ncdi_spec_dirs = [\"/etc/cdi\", "
      "\"/run/cdi/\"]\n");
  EXPECT_EQ(verdict(kTwo), "pass");
}

}  // namespace
}  // namespace ferry::kata
