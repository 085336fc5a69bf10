// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime_place.h"

#include <gmock/gmock.h>

#include "kata-manager/unit_file.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry {
namespace {

using testing::HasSubstr;

class RuntimePlaceTest : public testing::Test {
 protected:
  Result<RuntimePlace> found(const RuntimeChoice& choice = {}) const { return find_runtime(host, choice); }
  std::string name(const RuntimeChoice& choice = {}) const {
    const auto place = found(choice);
    return place ? place->name : place.error().message;
  }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
};

TEST_F(RuntimePlaceTest, IsTheOneThatRuns) {
  EXPECT_THAT(name(), HasSubstr("no container runtime is here"));
  scratch.file("usr/bin/containerd", "");
  EXPECT_EQ(name(), "containerd") << "installed, if none runs";
  scratch.directory("etc/crio");
  EXPECT_THAT(name(), HasSubstr("several container runtimes are installed here: cri-o, containerd"));
  scratch.file("run/crio/crio.sock", "");
  EXPECT_EQ(name(), "cri-o");
  scratch.file("run/containerd/containerd.sock", "");
  EXPECT_THAT(name(), HasSubstr("several container runtimes run here: cri-o, containerd"));
  EXPECT_EQ(name({.name = "containerd"}), "containerd");
  EXPECT_THAT(name({.name = "containrd"}), HasSubstr("did you mean 'containerd'?"));
}

TEST_F(RuntimePlaceTest, TellsDistributionsOfOneSocketApart) {
  scratch.file("run/k3s/containerd/containerd.sock", "");
  scratch.directory("var/lib/rancher/rke2/agent/etc/containerd");
  const auto place = test::must(found());
  EXPECT_EQ(place.name, "rke2");
  EXPECT_TRUE(place.rendered);
  EXPECT_EQ(place.configuration, "/var/lib/rancher/rke2/agent/etc/containerd/config.toml");
  scratch.file("lib/systemd/system/rke2-agent.service", "[Service]\n");
  EXPECT_EQ(unit_of(host, place), "rke2-agent.service");
  scratch.file("lib/systemd/system/rke2-server.service", "[Service]\n");
  EXPECT_EQ(unit_of(host, place), std::nullopt) << "to restart the wrong one would end the other";
  scratch.directory("sys/fs/cgroup/system.slice/rke2-agent.service");
  EXPECT_EQ(unit_of(host, place), "rke2-agent.service");
}

TEST_F(RuntimePlaceTest, LeavesK0sToItself) {
  scratch.file("etc/k0s/containerd.toml", "");
  EXPECT_THAT(name(), HasSubstr("k0s puts its containerd's configuration together"));
}

TEST_F(RuntimePlaceTest, IsWhereSomebodySays) {
  const auto place = test::must(found({.name = "containerd",
                                       .configuration = "/etc/other.toml",
                                       .socket = "/run/other.sock",
                                       .unit = "other.service"}));
  EXPECT_EQ(place.configuration, "/etc/other.toml");
  EXPECT_EQ(place.socket, "/run/other.sock");
  EXPECT_EQ(unit_of(host, place), std::nullopt) << "no such unit";
}

TEST(UnitFile, IsReadAsSystemdReadsIt) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  EXPECT_FALSE(UnitFile::read(host, "c.service").has_value());
  scratch.file("lib/systemd/system/c.service",
               "[Unit]\nKillMode=mixed\n[Service]\n# KillMode=none\nKillMode = process \nType=notify\r\n");
  scratch.file("usr/lib/systemd/system/c.service", "[Service]\nKillMode=none\n");
  const auto value = [&](const char* key) {
    return UnitFile::read(host, "c.service").value_or(UnitFile({})).value("Service", key);
  };
  EXPECT_EQ(value("KillMode"), "none") << "usr/lib counts before lib";
  scratch.remove("usr/lib/systemd/system/c.service");
  EXPECT_EQ(value("KillMode"), "process");
  EXPECT_EQ(value("Type"), "notify");
  EXPECT_EQ(value("Restart"), std::nullopt);
  scratch.file("etc/systemd/system/c.service.d/20-b.conf", "[Service]\nKillMode=\n");
  EXPECT_EQ(value("KillMode"), std::nullopt) << "an empty assignment takes back";
  scratch.file("run/systemd/system/c.service.d/30-c.conf", "[Service]\nKillMode=control-group\n");
  EXPECT_EQ(value("KillMode"), "control-group");
  scratch.file("etc/systemd/system/c.service.d/30-c.conf", "");
  EXPECT_EQ(value("KillMode"), std::nullopt) << "a drop-in of that name in etc hides the other";
  scratch.file("etc/systemd/system/c.service", "");
  EXPECT_FALSE(UnitFile::read(host, "c.service").has_value()) << "masked";
}

}  // namespace
}  // namespace ferry
