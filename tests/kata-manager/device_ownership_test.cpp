// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "kata-manager/configuration/kata_checks.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
namespace {

using testing::HasSubstr;

constexpr const char* kMain = "etc/containerd/config.toml";

class DeviceOwnership : public testing::Test {
 protected:
  std::string verdict() const { return std::string(text(check().verdict)); }
  Check check() const { return device_ownership_check(host); }
  void containerd_says(const std::string& text) const {
    scratch.file("run/containerd/containerd.sock", "");
    scratch.file(kMain, text);
  }
  void crio_says(const std::string& file, const std::string& text) const {
    scratch.file("run/crio/crio.sock", "");
    scratch.file("etc/crio/" + file, text);
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(DeviceOwnership, IsNotKnownWithoutAContainerRuntime) {
  EXPECT_EQ(verdict(), "unknown");
  EXPECT_THAT(check().found, HasSubstr("no container runtime is here"));
}

TEST_F(DeviceOwnership, IsReadFromContainerdsFilesOfEachVersion) {
  scratch.file("run/containerd/containerd.sock", "");
  EXPECT_EQ(verdict(), "warn") << "without a file it is off";
  struct Case {
    const char* text;
    const char* verdict;
  };
  for (const Case& one : {
           Case{"version = 2\n", "warn"},
           {"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n"
            "device_ownership_from_security_context = true\n",
            "pass"},
           {"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n"
            "device_ownership_from_security_context = false\n",
            "warn"},
           {"version = 3\n[plugins.\"io.containerd.cri.v1.runtime\"]\n"
            "device_ownership_from_security_context = true\n",
            "pass"},
           {"version = 3\n[plugins.\"io.containerd.grpc.v1.cri\"]\n"
            "device_ownership_from_security_context = true\n",
            "warn"},
           {"version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n"
            "device_ownership_from_security_context = \"true\"\n",
            "warn"},
           {"version = [\n", "unknown"},
       }) {
    containerd_says(one.text);
    EXPECT_EQ(verdict(), one.verdict) << one.text << check().found;
  }
}

TEST_F(DeviceOwnership, IsSaidWithTheFileAndTheKey) {
  containerd_says("version = 2\n");
  EXPECT_THAT(check().fix,
              HasSubstr("device_ownership_from_security_context = true to "
                        "[plugins.\"io.containerd.grpc.v1.cri\"] of /etc/containerd/config.toml"));
  containerd_says("version = 3\n");
  EXPECT_THAT(check().fix,
              HasSubstr("[plugins.\"io.containerd.cri.v1.runtime\"] of /etc/containerd/config.toml"));
}

TEST_F(DeviceOwnership, CountsInADropIn) {
  containerd_says("version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
  scratch.file("etc/containerd/conf.d/devices.toml",
               "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n"
               "device_ownership_from_security_context = true\n");
  EXPECT_EQ(verdict(), "pass");
  scratch.file("etc/containerd/conf.d/other.toml",
               "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n");
  EXPECT_EQ(verdict(), "warn");
  EXPECT_THAT(check().found, HasSubstr("two ways")) << "containerd 1 takes the last section whole";
}

TEST_F(DeviceOwnership, IsWrittenToTheTemplateOfADistribution) {
  scratch.file("run/k3s/containerd/containerd.sock", "");
  scratch.file("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 3\n");
  scratch.file("var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl", "{{ template \"base\" . }}\n");
  EXPECT_THAT(check().fix,
              HasSubstr("of /var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl, and restart k3s"));
}

TEST_F(DeviceOwnership, IsReadFromCriosFilesInTheirOrder) {
  crio_says("crio.conf", "[crio.runtime]\ndevice_ownership_from_security_context = true\n");
  EXPECT_EQ(verdict(), "pass");
  crio_says("crio.conf.d/20-site.conf", "[crio.runtime]\ndevice_ownership_from_security_context = false\n");
  EXPECT_EQ(verdict(), "warn");
  EXPECT_THAT(check().fix, HasSubstr("to [crio.runtime] of /etc/crio/crio.conf.d/20-site.conf"));
  crio_says("crio.conf.d/30-kubevirt.conf",
            "[crio.runtime]\ndevice_ownership_from_security_context = true\n");
  EXPECT_EQ(verdict(), "pass");
  crio_says("crio.conf.d/40-broken.conf", "[crio.runtime\n");
  EXPECT_EQ(verdict(), "unknown");
  EXPECT_THAT(check().found, HasSubstr("/etc/crio/crio.conf.d/40-broken.conf:1"));
}

}  // namespace
}  // namespace ferry::kata
