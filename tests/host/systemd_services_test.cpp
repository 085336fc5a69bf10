// SPDX-License-Identifier: Apache-2.0
#include "host/system/systemd_services.h"

#include <chrono>

#include <gmock/gmock.h>

#include "tests/host/fake_systemd.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::FakeSystemd;
using testing::ElementsAre;
using testing::HasSubstr;
using Manner = FakeSystemd::Manner;

constexpr std::chrono::milliseconds kPatience = 20s;  // more than a loaded machine needs
constexpr std::chrono::milliseconds kNeverDone = 3s;  // of those that take a job on, and never end it
constexpr std::chrono::milliseconds kShort = 50ms;    // of those that never answer

class SystemdServicesTest : public testing::Test {
 protected:
  SystemdServicesTest() {
    tree_.directory("run/systemd");
    tree_.directory("run/dbus");
  }
  std::filesystem::path door() const { return tree_.path() / "run/systemd/private"; }
  Result<> stop(std::chrono::milliseconds deadline = kPatience) {
    return SystemdServices(host_, deadline).stop("a.service");
  }
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(SystemdServicesTest, StopsAndStartsAndWaitsForTheJobsEnd) {
  const FakeSystemd systemd(door(), Manner::prompt);
  SystemdServices services(host_, kPatience);
  EXPECT_TRUE(services.stop("a.service"));
  EXPECT_TRUE(services.start("b@1.service"));
  EXPECT_THAT(systemd.orders(), ElementsAre("StopUnit a.service replace", "StartUnit b@1.service replace"));
}

TEST_F(SystemdServicesTest, BelievesAJobThatEndsBeforeItIsReported) {
  const FakeSystemd systemd(door(), Manner::hasty);
  EXPECT_TRUE(stop());
}

TEST_F(SystemdServicesTest, WaitsForItsOwnJob) {
  const FakeSystemd systemd(door(), Manner::others_first);
  EXPECT_TRUE(stop());
}

TEST_F(SystemdServicesTest, PassesOnWhatSystemdSays) {
  const FakeSystemd systemd(door(), Manner::refuses);
  const auto stopped = stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::failed);
  EXPECT_EQ(stopped.error().message, "systemd: Unit a.service not loaded.");
}

TEST_F(SystemdServicesTest, FailsWithAJobThatFails) {
  const FakeSystemd systemd(door(), Manner::fails);
  const auto stopped = stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::failed);
  EXPECT_THAT(stopped.error().message, HasSubstr("\"failed\""));
  EXPECT_THAT(stopped.error().hint, HasSubstr("systemctl status a.service"));
}

TEST_F(SystemdServicesTest, RefusesAnAnswerWithoutAJob) {
  const FakeSystemd systemd(door(), Manner::wrong_answer);
  const auto stopped = stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::failed);
}

TEST_F(SystemdServicesTest, NoticesThatTheConnectionEnds) {
  const FakeSystemd systemd(door(), Manner::hangs_up);
  EXPECT_FALSE(stop());
}

TEST_F(SystemdServicesTest, GivesAJobUpAtTheDeadline) {
  const FakeSystemd systemd(door(), Manner::keeps_the_job);
  const auto stopped = stop(kNeverDone);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::unreachable);
  EXPECT_EQ(stopped.error().message, "its job was taken on: systemd has not answered by the deadline");
}

TEST_F(SystemdServicesTest, WaitsForNoStartThatMayWaitForItsOwnService) {
  tree_.file("proc/self/cgroup", "0::/system.slice/ferry-apply.service\n");
  const FakeSystemd systemd(door(), Manner::keeps_the_job);
  SystemdServices services(host_, kNeverDone);
  EXPECT_TRUE(services.start("a.service"));
  EXPECT_FALSE(services.stop("a.service")) << "that must have ended before the device is looked at";
}

TEST_F(SystemdServicesTest, GivesUpAtTheDeadlineThoughNobodySaysWhoItIs) {
  const FakeSystemd systemd(door(), Manner::silent);
  const auto stopped = stop(kShort);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::unreachable);
  EXPECT_EQ(stopped.error().message, "systemd has not answered by the deadline");
}

TEST_F(SystemdServicesTest, AsksOnTheBusWhereSystemdHasNoSocketOfItsOwn) {
  const FakeSystemd bus(tree_.path() / "run/dbus/system_bus_socket", Manner::prompt);
  EXPECT_TRUE(stop());
  EXPECT_THAT(bus.orders(), ElementsAre("AddMatch", "Subscribe", "StopUnit a.service replace"))
      << "listening before asking";
}

TEST_F(SystemdServicesTest, SaysThatNobodyListens) {
  { const FakeSystemd gone(door(), Manner::prompt); }
  const auto stopped = stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::unreachable);
  EXPECT_THAT(stopped.error().message, HasSubstr("connect to /run/systemd/private: Connection refused"));
}

TEST_F(SystemdServicesTest, IsThereWhereSystemdIs) {
  EXPECT_EQ(systemd_services(host_), nullptr);
  const FakeSystemd systemd(door(), Manner::prompt);
  EXPECT_NE(systemd_services(host_), nullptr);
}

}  // namespace
}  // namespace ferry::host
