// SPDX-License-Identifier: Apache-2.0
// A process that is killed anywhere, and the next one.
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/dra/claims_fixture.h"

namespace ferry::dra {
namespace {

using api::ClaimAction;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Killed {};

/// The process ends at one of its writes, before or after it.
class DyingHost : public HostFs {
 public:
  DyingHost(const std::filesystem::path& root, int write, bool after)
      : HostFs(root), left_(write), after_(after) {}

  Result<> write_file(const std::filesystem::path& relative, std::string_view content, mode_t mode) override {
    return at([&] { return HostFs::write_file(relative, content, mode); });
  }

 private:
  Result<> at(const std::function<Result<>()>& write) {
    const bool ends = left_-- == 0;
    if (ends && !after_) throw Killed();
    Result<> done = write();
    if (ends) throw Killed();
    return done;
  }

  int left_;
  const bool after_;
};

class ClaimRecoveryTest : public test::ClaimsFixture {
 protected:
  /// The file of a killed process has each claim of which hostd has devices.
  void expect_a_record() const {
    if (hostd->claims().empty()) return;
    EXPECT_THAT(on_disk().claims, SizeIs(1));
  }

  /// True: the process was killed at this write.
  bool live_and_die(const ClaimKey& claim, int write, bool after) {
    DyingHost dying(root.path(), write, after);
    bool killed = false;
    bool undoes = false;
    try {
      start(dying);
      EXPECT_EQ(error_of(prepare({claim})), "");
      undoes = true;
      EXPECT_EQ(error_of(unprepare({claim})), "");
    } catch (const Killed&) {
      killed = true;
      expect_a_record();
    }
    start();
    // The kubelet has no answer, and asks again.
    if (!undoes) {
      EXPECT_EQ(error_of(prepare({claim})), "");
      EXPECT_EQ(on_disk().claims.at(0).phase, CheckpointPhase::prepared);
      EXPECT_THAT(hostd->claims(), SizeIs(1));
    }
    EXPECT_EQ(error_of(unprepare({claim})), "");
    EXPECT_THAT(on_disk().claims, IsEmpty());
    EXPECT_THAT(hostd->claims(), IsEmpty());
    driver.reset();  // before its host
    return killed;
  }
};

TEST_F(ClaimRecoveryTest, AKillAtAnyWriteLosesNothing) {
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}, {"second", kVgpu}});
  for (const bool after : {false, true}) {
    int write = 0;
    while (live_and_die(claim, write, after)) ++write;
    EXPECT_GE(write, 4) << "two checkpoints for each request";
    EXPECT_FALSE(HasFailure()) << "at write " << write;
  }
}

TEST_F(ClaimRecoveryTest, TheNextProcessFindsTheFinishedWork) {
  start();
  hostd->answer_by([this](const api::ClaimRequest&) -> std::optional<test::FakeHostd::Answer> {
    gate.wait();
    return std::nullopt;
  });
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  const auto asked = ask({claim});
  ASSERT_TRUE(run_until([&] { return hostd->count(ClaimAction::prepare) == 1; }));
  start();  // the former one is gone, and its request with it
  EXPECT_FALSE(asked->has_value());
  gate.open();
  EXPECT_EQ(driver->checkpoint().claims.at(0).phase, CheckpointPhase::preparing);
  EXPECT_EQ(error_of(prepare({claim})), "");
  EXPECT_THAT(hostd->claims(), ElementsAre(testing::Pair(claim.uid, 1)));
}

TEST_F(ClaimRecoveryTest, AClaimEndsWhileNoProcessRuns) {
  start();
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  reader.objects.clear();
  start();
  EXPECT_THAT(driver->checkpoint().claims, SizeIs(1)) << "the kubelet has not asked yet";
  EXPECT_EQ(error_of(unprepare({claim})), "");
  EXPECT_THAT(on_disk().claims, IsEmpty());
}

TEST_F(ClaimRecoveryTest, AnotherBootHasNoClaims) {
  start();
  const ClaimKey claim = allocate("render-a", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({claim})), "");
  root.file("proc/sys/kernel/random/boot_id", "boot-2\n");
  start();
  EXPECT_EQ(on_disk(), Checkpoint{.boot_id = "boot-2"});
  EXPECT_EQ(error_of(prepare({claim})), "");
}

TEST_F(ClaimRecoveryTest, DevicesStayWithTheirClaim) {
  start();
  const ClaimKey first = allocate("render-a", {{"card", kWhole}});
  const ClaimKey second = allocate("render-b", {{"card", kWhole}});
  ASSERT_EQ(error_of(prepare({first})), "");
  start();
  EXPECT_THAT(error_of(prepare({second})), HasSubstr("still has it"));
}

TEST_F(ClaimRecoveryTest, AnUnreadableCheckpointEndsTheStart) {
  root.file(api::kCheckpointFile, "{\"version\": 1");
  loop = must(EventLoop::create());
  const auto opened = ClaimDriver::open(
      {.loop = *loop, .host = host, .reader = reader, .node = node, .events = events, .changed = {}},
      settings);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::malformed_host);
  EXPECT_EQ(must(host.read_file(api::kCheckpointFile)), "{\"version\": 1");
}

}  // namespace
}  // namespace ferry::dra
