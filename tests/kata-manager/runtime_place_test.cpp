// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/runtime_place.h"

#include <cerrno>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <system_error>

#include <gmock/gmock.h>

#include "kata-manager/runtimes/unit_file.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::kata {
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

TEST_F(RuntimePlaceTest, DistinguishesDistributionsOfOneSocket) {
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

TEST_F(RuntimePlaceTest, FindsK0sByItsOwnContainerd) {
  scratch.file("etc/k0s/k0s.yaml", "");
  EXPECT_THAT(name(), HasSubstr("no container runtime is here")) << "a controller that runs no pods";
  scratch.file("etc/k0s/containerd.toml", "");
  const auto place = test::must(found());
  EXPECT_EQ(place.name, "k0s");
  EXPECT_EQ(place.configuration, "/etc/k0s/containerd.d");
  scratch.remove("etc/k0s");
  scratch.file("run/k0s/containerd.sock", "");
  EXPECT_EQ(name(), "k0s");
}

TEST_F(RuntimePlaceTest, HasTheFileThatItsUnitNames) {
  scratch.file("usr/bin/containerd", "");
  scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n");
  EXPECT_EQ(test::must(found()).configuration, "/etc/containerd/config.toml");
  scratch.file(
      "etc/systemd/system/containerd.service.d/10-own.conf",
      "[Service]\nExecStart=\nExecStart=/opt/bin/containerd \\\n# not this\n  --config /srv/c.toml \\\n"
      "  --address /run/c.sock\n");
  const auto place = test::must(found());
  EXPECT_EQ(place.configuration, "/srv/c.toml");
  EXPECT_EQ(place.socket, "/run/c.sock");
  EXPECT_EQ(place.programs.front(), "/opt/bin/containerd");
  EXPECT_THAT(place.notes, testing::IsEmpty());
  const auto said = test::must(found({.configuration = "/etc/other.toml", .socket = "/run/other.sock"}));
  EXPECT_EQ(said.configuration, "/etc/other.toml") << "what somebody says counts";
  EXPECT_EQ(said.socket, "/run/other.sock");
  // One that a class file names as the service.
  scratch.file("etc/systemd/system/kata.service",
               "[Service]\nExecStart=/usr/bin/containerd -c /etc/kata.toml\n");
  EXPECT_EQ(test::must(found({.unit = "kata.service"})).configuration, "/etc/kata.toml");
}

// The command counts more than the files, and later files more than earlier ones.
TEST_F(RuntimePlaceTest, HasTheSocketThatItsFilesName) {
  scratch.file(
      "etc/containerd/config.toml",
      "version = 2\nimports = [\"conf.d/*.toml\"]\n[grpc]\naddress = \"/run/containerd/orig.sock\"\n");
  EXPECT_EQ(test::must(found()).socket, "/run/containerd/orig.sock");
  const RuntimePlace chosen = test::must(found({.socket = "/run/other.sock"}));
  EXPECT_EQ(chosen.socket, "/run/other.sock");
  EXPECT_EQ(chosen.next_socket, "/run/containerd/orig.sock") << "its next start has the socket of the files";
  scratch.file("etc/containerd/conf.d/a.toml", "[grpc]\naddress = \"/run/a.sock\"\n");
  scratch.file("etc/containerd/conf.d/b.toml", "[grpc]\nuid = 1\n");
  EXPECT_EQ(test::must(found()).socket, "/run/a.sock");
  scratch.file("etc/containerd/conf.d/b.toml",
               "version = 4\n[plugins.\"io.containerd.server.v1.grpc\"]\naddress = \"/run/b.sock\"\n");
  EXPECT_EQ(test::must(found()).socket, "/run/b.sock");
  EXPECT_THAT(test::must(found()).notes, testing::IsEmpty());
  scratch.file("run/containerd/containerd.sock", "");
  scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n");
  EXPECT_EQ(test::must(found()).socket, "/run/b.sock");
  EXPECT_THAT(test::must(found()).notes, testing::ElementsAre(HasSubstr("has not been restarted since")));
  scratch.file("lib/systemd/system/containerd.service",
               "[Service]\nExecStart=/usr/bin/containerd -a /run/containerd/containerd.sock\n");
  EXPECT_EQ(test::must(found()).socket, "/run/containerd/containerd.sock");
  scratch.file("etc/other.toml", "[grpc]\naddress = \"/run/other.sock\"\n");
  scratch.remove("lib");
  EXPECT_EQ(test::must(found({.configuration = "/etc/other.toml"})).socket, "/run/other.sock");
  scratch.file("etc/containerd/config.toml", "no toml");
  EXPECT_EQ(test::must(found()).socket, "/run/containerd/containerd.sock");
}

TEST_F(RuntimePlaceTest, SaysThatItsUnitDoesNotNameIt) {
  scratch.file("usr/bin/containerd", "");
  const auto with = [&](const std::string& line) {
    scratch.file("lib/systemd/system/containerd.service", "[Service]\nExecStart=" + line + "\n");
    return test::must(found());
  };
  const auto open = with("/usr/bin/containerd $OPTIONS");
  EXPECT_EQ(open.configuration, "/etc/containerd/config.toml");
  EXPECT_THAT(open.notes, testing::ElementsAre(HasSubstr("only systemd knows")));
  EXPECT_THAT(with("/usr/local/bin/start").notes,
              testing::ElementsAre(HasSubstr("starts /usr/local/bin/start")));
  EXPECT_THAT(test::must(found({.configuration = "/etc/other.toml"})).notes, testing::IsEmpty());
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
  scratch.file("etc/systemd/system/c.service.d/40-d.conf",
               "[Service]\nKillMode=\\\n# control-group\n  process\n# Type=a \\\nType=b\n");
  EXPECT_EQ(value("KillMode"), "process") << "a line goes on behind a backslash, past comments";
  EXPECT_EQ(value("Type"), "b") << "a comment does not";
  scratch.file("etc/systemd/system/c.service", "");
  EXPECT_FALSE(UnitFile::read(host, "c.service").has_value()) << "masked";
}

// As `systemctl mask` leaves it.
TEST(UnitFile, IsNoneWhereItIsMaskedByALink) {
  const test::ScratchDirectory scratch;
  const HostFs host(scratch.path());
  scratch.directory("dev");
  constexpr unsigned kMemory = 1;
  constexpr unsigned kNull = 3;
  if (::mknod((scratch.path() / "dev/null").c_str(), S_IFCHR | 0666, ::makedev(kMemory, kNull)) != 0)
    GTEST_SKIP() << "no device node can be made here: " << std::generic_category().message(errno);
  scratch.file("lib/systemd/system/c.service", "[Service]\nKillMode=process\n");
  EXPECT_TRUE(UnitFile::read(host, "c.service").has_value());
  scratch.link("etc/systemd/system/c.service", "/dev/null");
  EXPECT_FALSE(UnitFile::read(host, "c.service").has_value()) << "the package's file does not count";
}

}  // namespace
}  // namespace ferry::kata
