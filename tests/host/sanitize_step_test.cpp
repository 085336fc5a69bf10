// SPDX-License-Identifier: Apache-2.0
#include "host/sanitize/sanitize_step.h"

#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "host/sanitize/gpu_history.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using api::SanitizeResult;
using api::SanitizeState;
using policy::Sanitize;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using vfio::Sanitizing;

constexpr std::uint64_t kNow = 1796000000;

vfio::PciAddress at(const char* text) {
  return test::must(vfio::PciAddress::parse(text));
}
const vfio::PciAddress kGpu = at("0000:17:00.0");

/// The history of a GPU that has been sanitized since it was bound.
GpuHistory clean() {
  GpuHistory out{.address = kGpu, .id = "10de:2331", .boot_id = "b", .binding = 5};
  out.status.count = 3;
  return out;
}
SanitizeFacts facts(std::string user = {}) {
  return {.user = std::move(user), .boot_id = "b", .binding = 5};
}

TEST(SanitizeStep, GoesFromAUserToTheReset) {
  GpuHistory gpu = clean();
  follow(gpu, facts(), kNow);
  EXPECT_EQ(gpu, clean()) << "it was free, and is free";
  follow(gpu, facts("pod games/vm-1"), kNow + 1);
  follow(gpu, facts("pod games/vm-1"), kNow + 2);
  EXPECT_EQ(gpu.status.state, SanitizeState::in_use);
  EXPECT_EQ(gpu.status.since, kNow + 1);
  EXPECT_THAT(gpu.events, ElementsAre(GpuEvent{kNow + 1, SanitizeState::in_use, "pod games/vm-1"}));
  follow(gpu, facts(), kNow + 3);
  follow(gpu, facts(), kNow + 4);
  EXPECT_EQ(gpu.status.state, SanitizeState::sanitizing);
  EXPECT_EQ(gpu.status.since, kNow + 3);
  EXPECT_THAT(gpu.events, SizeIs(2));
  EXPECT_THAT(why_not_available(gpu.address, gpu.status), HasSubstr("0000:17:00.0 is being sanitized"));
  follow(gpu, facts("claim studio/render"), kNow + 5);
  EXPECT_EQ(gpu.status.state, SanitizeState::in_use) << "a user that came in between counts";
}

TEST(SanitizeStep, SanitizesAGpuWhosePastIsNotKnown) {
  struct Case {
    const char* what;
    GpuHistory gpu;
    SanitizeFacts facts;
    bool sanitizes;
  };
  GpuHistory of_another_boot = clean();
  of_another_boot.boot_id = "a";
  GpuHistory bound_since = clean();
  bound_since.binding = 4;
  GpuHistory failed = clean();
  failed.status.state = SanitizeState::failed;
  SanitizeFacts used = facts();
  used.used_since = 3;
  SanitizeFacts used_before = facts();
  used_before.used_since = 2;
  SanitizeFacts asked = facts();
  asked.is_asked = true;
  const std::vector<Case> cases = {
      {"never seen", {.address = kGpu, .id = "10de:2331"}, facts(), true},
      {"of another boot", of_another_boot, facts(), true},
      {"bound since", bound_since, facts(), true},
      {"used unseen, as the plugin says", clean(), used, true},
      {"the plugin speaks of an earlier use", clean(), used_before, false},
      {"asked for by an administrator", clean(), asked, true},
      {"failed stays", failed, facts(), false},
      {"failed, and asked for again", failed, asked, true},
  };
  for (Case one : cases) {
    follow(one.gpu, one.facts, kNow);
    EXPECT_EQ(one.gpu.status.state == SanitizeState::sanitizing, one.sanitizes) << one.what;
    GpuHistory user_first = one.gpu;
    SanitizeFacts with_user = one.facts;
    with_user.user = "pod games/vm-1";
    follow(user_first, with_user, kNow);
    EXPECT_EQ(user_first.status.state, SanitizeState::in_use) << one.what;
  }
}

TEST(SanitizeStep, EndsByTheResultAndThePolicy) {
  struct Case {
    const char* what;
    Sanitizing result;
    SanitizeResult is;
    SanitizeState best_effort;
    SanitizeState required;
    const char* event;
  };
  const std::vector<Case> cases = {
      {"proven",
       {.method = "hot-reset"},
       SanitizeResult::proven,
       SanitizeState::available,
       SanitizeState::available,
       "reset by hot-reset in 2100 ms, proven"},
      {"no register",
       {.method = "flr", .unproven = "its registers are not known"},
       SanitizeResult::unproven,
       SanitizeState::available,
       SanitizeState::failed,
       "reset by flr in 2100 ms, unproven: its registers are not known"},
      {"no method",
       {.problem = "the kernel knows no method to reset it"},
       SanitizeResult::failed,
       SanitizeState::available,
       SanitizeState::failed,
       "not sanitized: the kernel knows no method to reset it"},
      {"recovery",
       {.method = "bus", .problem = "its firmware is in recovery mode"},
       SanitizeResult::failed,
       SanitizeState::available,
       SanitizeState::failed,
       "not sanitized: its firmware is in recovery mode"},
      {"nothing at all",
       {},
       SanitizeResult::failed,
       SanitizeState::available,
       SanitizeState::failed,
       "not sanitized: it was not reset"},
  };
  for (const Case& one : cases) {
    for (const Sanitize policy : {Sanitize::best_effort, Sanitize::required}) {
      GpuHistory gpu = clean();
      gpu.enter(SanitizeState::sanitizing, "its last use is over", kNow);
      finish(gpu, {.result = one.result, .took = std::chrono::milliseconds(2100)}, policy, kNow + 2);
      EXPECT_EQ(gpu.status.result, one.is) << one.what;
      EXPECT_EQ(gpu.status.state, policy == Sanitize::required ? one.required : one.best_effort) << one.what;
      EXPECT_EQ(gpu.status.count, 4U) << one.what;
      EXPECT_EQ(gpu.status.since, kNow + 2) << one.what;
      EXPECT_EQ(gpu.events.back().text, one.event) << one.what;
    }
  }
}

TEST(SanitizeStep, AVmThatCameFirstIsTheNextUser) {
  GpuHistory gpu = clean();
  gpu.enter(SanitizeState::sanitizing, "its last use is over", kNow);
  finish(gpu, {.result = {.in_use = true}}, Sanitize::required, kNow + 1);
  EXPECT_EQ(gpu.status.state, SanitizeState::in_use);
  EXPECT_EQ(gpu.status.count, 3U) << "nothing was reset";
  follow(gpu, facts(), kNow + 2);
  EXPECT_EQ(gpu.status.state, SanitizeState::sanitizing);
}

TEST(SanitizeStep, AnAdministratorAcceptsAFailureAlone) {
  GpuHistory gpu = clean();
  accept(gpu, kNow);
  EXPECT_EQ(gpu, clean());
  gpu.enter(SanitizeState::failed, "failed", kNow);
  EXPECT_THAT(why_not_available(gpu.address, gpu.status), HasSubstr("could not be sanitized"));
  accept(gpu, kNow + 1);
  EXPECT_EQ(gpu.status.state, SanitizeState::available);
  EXPECT_EQ(gpu.status.result, SanitizeResult::accepted);
  EXPECT_EQ(gpu.status.count, 4U) << "the device plugin waits for another count";
  EXPECT_EQ(why_not_available(gpu.address, gpu.status), "");
}

TEST(SanitizeRuns, HasOneOfEachGpu) {
  SanitizeRuns runs;
  EXPECT_TRUE(runs.begin(kGpu));
  EXPECT_FALSE(runs.begin(kGpu));
  EXPECT_THAT(runs.take(), IsEmpty()) << "it runs";
  EXPECT_TRUE(runs.has(kGpu));
  runs.end(kGpu, {.result = {.method = "flr"}});
  EXPECT_FALSE(runs.begin(kGpu)) << "its result is not taken yet";
  EXPECT_TRUE(runs.has(kGpu));
  EXPECT_THAT(runs.take(), SizeIs(1));
  EXPECT_FALSE(runs.has(kGpu));
  EXPECT_TRUE(runs.begin(kGpu));
}

// -- the record --

TEST(GpuHistories, AreReadAsTheyWereWritten) {
  GpuHistories histories{.policy = Sanitize::required, .gpus = {clean()}};
  histories.gpus.front().status = {.state = SanitizeState::failed,
                                   .since = kNow,
                                   .count = 7,
                                   .result = SanitizeResult::unproven,
                                   .method = "flr",
                                   .detail = "it is locked",
                                   .milliseconds = 12};
  histories.gpus.front().events = {{kNow, SanitizeState::in_use, "pod games/vm-1"}};
  EXPECT_EQ(test::must(read_gpu_histories(gpu_histories_text(histories))), histories);
}

TEST(GpuHistories, HaveAHistoryOfEachCard) {
  GpuHistories histories;
  histories.of(at("0000:65:00.0"), "10de:2331").status.count = 2;
  histories.of(kGpu, "10de:2331").status.count = 5;
  EXPECT_EQ(histories.gpus.front().address, kGpu) << "in order of address";
  EXPECT_EQ(histories.of(kGpu, "10de:2331").status.count, 5U);
  histories.of(kGpu, "10de:2331").events.push_back({});
  EXPECT_THAT(histories.of(kGpu, "10de:26b9").events, IsEmpty()) << "another card is in its slot";
  EXPECT_EQ(histories.of(kGpu, "10de:26b9").status.count, 5U) << "no count comes twice";
  EXPECT_EQ(histories.find(at("0000:99:00.0")), nullptr);
}

TEST(GpuHistories, ForgetTheOldestEvents) {
  GpuHistory gpu = clean();
  for (std::uint64_t i = 0; i < kMostEvents + 10; ++i) gpu.enter(SanitizeState::in_use, "", i);
  EXPECT_THAT(gpu.events, SizeIs(kMostEvents));
  EXPECT_EQ(gpu.events.front().at, 10U);
}

TEST(GpuHistories, NameTheFaultOfABadRecord) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "/var/lib/ferry-hostd/gpus/history.json"},
      {"{", "/var/lib/ferry-hostd/gpus/history.json"},
      {"[]", "/var/lib/ferry-hostd/gpus/history.json"},
      {R"({"version": 2, "policy": "off", "gpus": []})", "version"},
      {R"({"version": 1, "gpus": []})", "policy"},
      {R"({"version": 1, "policy": "perhaps", "gpus": []})", "policy"},
      {R"({"version": 1, "policy": "off", "gpus": [{"address": "17", "id": "", "status": {}, "events": []}]})",
       "address"},
      {R"({"version": 1, "policy": "off", "gpus": [{"address": "0000:17:00.0", "id": "", "events": [],
           "status": {"state": "clean", "since": 1, "count": 1}}]})",
       "state"},
      {R"({"version": 1, "policy": "off", "gpus": [{"address": "0000:17:00.0", "id": "", "events": [],
           "status": {"state": "in_use", "since": 1, "count": -1}}]})",
       "count"},
      {R"({"version": 1, "policy": "off", "gpus": [{"address": "0000:17:00.0", "id": "", "events": [],
           "status": {"state": "in_use", "since": 9223372036854775807, "count": 1}}]})",
       "gpus[0].status: since: no time"},
      {R"({"version": 1, "policy": "off", "gpus": [{"address": "0000:17:00.0", "id": "",
           "events": [{"at": 18446744073709551615, "state": "in_use"}],
           "status": {"state": "in_use", "since": 1, "count": 1}}]})",
       "gpus[0].events[0].at: no time"},
      {R"({"version": 1, "policy": "off", "gpus": [
           {"address": "0000:17:00.0", "id": "", "events": [],
            "status": {"state": "in_use", "since": 1, "count": 1}},
           {"address": "0000:17:00.0", "id": "", "events": [],
            "status": {"state": "available", "since": 1, "count": 1}}]})",
       "gpus: 0000:17:00.0 stands twice"},
  };
  for (const auto& [text, names] : cases) {
    const auto read = read_gpu_histories(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, Errc::malformed_host) << text;
    EXPECT_THAT(read.error().message, HasSubstr(names)) << text;
  }
}

TEST(UnsanitizedGpus, AreNotOtherBoardsInTheSameSlots) {
  test::FakeKernel kernel;
  kernel.add_function({.address = kGpu.text(), .ids = "10de:2331", .class_code = 0x030200});
  GpuHistories histories{.policy = Sanitize::required, .gpus = {clean()}};
  histories.gpus.front().enter(SanitizeState::sanitizing, "", kNow);
  for (const auto& [id, count] : std::map<std::string, std::size_t>{{"10de:2331", 1}, {"10de:26b9", 0}}) {
    histories.gpus.front().id = id;
    test::must(store_gpu_histories(kernel, histories));
    EXPECT_THAT(test::must(unsanitized_gpus(kernel)), SizeIs(count)) << id;
  }
}

TEST(UnsanitizedGpus, AreThoseOfAPolicyThatAsks) {
  test::ScratchDirectory tree;
  HostFs host(tree.path());
  EXPECT_THAT(test::must(unsanitized_gpus(host)), IsEmpty()) << "no record";
  GpuHistories histories{.policy = Sanitize::required, .gpus = {clean()}};
  histories.gpus.front().enter(SanitizeState::sanitizing, "", kNow);
  test::must(store_gpu_histories(host, histories));
  EXPECT_THAT(test::must(unsanitized_gpus(host)), SizeIs(1));
  histories.policy = Sanitize::off;
  test::must(store_gpu_histories(host, histories));
  EXPECT_THAT(test::must(unsanitized_gpus(host)), IsEmpty());
  tree.file(kGpuHistoryFile, "{");
  EXPECT_FALSE(unsanitized_gpus(host));
}

}  // namespace
}  // namespace ferry::host
