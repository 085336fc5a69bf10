// SPDX-License-Identifier: Apache-2.0
// hostd sanitizes the GPUs of a claim that ends, before they leave vfio-pci.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "host/sanitize/gpu_history.h"
#include "tests/host/claim_node.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using api::SanitizeResult;
using api::SanitizeState;
using policy::Sanitize;
using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using vfio::Sanitizing;

class ClaimSanitizing : public testing::Test {
 protected:
  void ask_for(Sanitize policy) {
    must(change_gpu_histories(node_.kernel, [&](GpuHistories& histories) { histories.policy = policy; }));
  }
  ClaimKeeper::Answer prepare(const std::string& uid, const char* gpu) {
    return keeper_.serve(ClaimNode::request(uid, {ClaimNode::whole(gpu)}));
  }
  ClaimKeeper::Answer unprepare(const std::string& uid) {
    return keeper_.serve(ClaimNode::undo_request(uid));
  }
  api::SanitizeStatus status(const char* gpu) const {
    const GpuHistories histories = must(load_gpu_histories(node_.kernel));
    const GpuHistory* const found = histories.find(ClaimNode::at(gpu));
    return found == nullptr ? api::SanitizeStatus() : found->status;
  }

  ClaimNode node_;
  std::vector<std::string> reset_;  ///< the GPU and its driver at that time
  Sanitizing answer_{.method = "hot-reset"};
  ClaimKeeper keeper_{node_.kernel,
                      {.for_rebinds = node_.users, .for_vgpus = node_.users, .open_nodes = node_.users},
                      [this](const NodeProbes& uses) { return node_.context(uses); },
                      {.lock_patience = std::chrono::milliseconds(1),
                       .sanitize = [this](HostWriter&, const HostFs&, const vfio::PciAddress& gpu) {
                         reset_.push_back(gpu.text() + " " + node_.kernel.driver_of(gpu.text()));
                         return answer_;
                       }}};
};

TEST_F(ClaimSanitizing, IsUpToThePolicy) {
  must(prepare("a", ClaimNode::kWhole));
  must(unprepare("a"));
  EXPECT_THAT(reset_, IsEmpty());
  EXPECT_FALSE(node_.kernel.exists(kGpuHistoryFile));
}

TEST_F(ClaimSanitizing, ResetsEachGpuOfTheGroupWhileItIsOnVfio) {
  ask_for(Sanitize::required);
  const std::string before = node_.state();
  must(prepare("a", ClaimNode::kPair));
  EXPECT_THAT(reset_, ElementsAre("0000:08:00.0 vfio-pci", "0000:09:00.0 vfio-pci"))
      << "the host has had them";
  reset_.clear();
  must(prepare("a", ClaimNode::kPair));
  EXPECT_THAT(reset_, IsEmpty()) << "a second run";
  must(unprepare("a"));
  EXPECT_THAT(reset_, ElementsAre("0000:08:00.0 vfio-pci", "0000:09:00.0 vfio-pci"));
  EXPECT_EQ(node_.state(), before);
  EXPECT_EQ(status(ClaimNode::kPair).result, SanitizeResult::proven);
  EXPECT_EQ(status(ClaimNode::kOtherOfPair).state, SanitizeState::available);
  reset_.clear();
  must(unprepare("a"));
  EXPECT_THAT(reset_, IsEmpty()) << "a claim that is undone is not sanitized again";
}

TEST_F(ClaimSanitizing, RefusesTheNextClaimAfterAFailure) {
  ask_for(Sanitize::required);
  must(prepare("a", ClaimNode::kWhole));
  answer_ = {.problem = "the kernel knows no method to reset it"};
  must(unprepare("a"));
  EXPECT_EQ(status(ClaimNode::kWhole).state, SanitizeState::failed);
  EXPECT_THAT(node_.record().claims, IsEmpty()) << "the kubelet is done with the claim";
  const auto next = prepare("b", ClaimNode::kWhole);
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, Errc::refused);
  EXPECT_THAT(next.error().message,
              HasSubstr("could not be sanitized after its last use: the kernel knows no"));
  EXPECT_THAT(node_.record().claims, IsEmpty());
  must(
      change_gpu_histories(node_.kernel, [](GpuHistories& histories) { accept(histories.gpus.front(), 1); }));
  must(prepare("b", ClaimNode::kWhole));
}

TEST_F(ClaimSanitizing, GivesNoClaimAGpuThatCannotBeSanitizedFirst) {
  ask_for(Sanitize::required);
  const std::string before = node_.state();
  answer_ = {.method = "flr", .unproven = "its registers are not known"};
  const auto refused = prepare("a", ClaimNode::kWhole);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_THAT(refused.error().message, HasSubstr("its registers are not known"));
  EXPECT_THAT(node_.record().claims, IsEmpty());
  EXPECT_EQ(node_.state(), before);
}

TEST_F(ClaimSanitizing, BestEffortLetsTheNextClaimHaveIt) {
  ask_for(Sanitize::best_effort);
  answer_ = {.problem = "the kernel knows no method to reset it"};
  must(prepare("a", ClaimNode::kWhole));
  must(unprepare("a"));
  EXPECT_EQ(status(ClaimNode::kWhole).result, SanitizeResult::failed);
  must(prepare("b", ClaimNode::kWhole));
}

TEST_F(ClaimSanitizing, TakesNoGpuFromAProgram) {
  ask_for(Sanitize::required);
  must(prepare("a", ClaimNode::kWhole));
  answer_ = {.in_use = true};
  const auto undone = unprepare("a");
  ASSERT_FALSE(undone);
  EXPECT_EQ(undone.error().code, Errc::refused);
  EXPECT_EQ(node_.kernel.driver_of(ClaimNode::kWhole), "vfio-pci");
  EXPECT_EQ(status(ClaimNode::kWhole).state, SanitizeState::in_use);
  EXPECT_THAT(undone.error().message, HasSubstr("a program has opened its group"));
  node_.users.held.emplace(ClaimNode::kWhole,
                           vfio::DeviceUser{.kind = vfio::DeviceUser::Kind::virtual_machine,
                                            .name = "tenant",
                                            .pid = 412,
                                            .what = "/dev/vfio/5"});
  const auto named = unprepare("a");
  ASSERT_FALSE(named);
  EXPECT_THAT(named.error().message, HasSubstr("is in use: VM tenant (pid 412)"));
  node_.users.held.clear();
  answer_ = {.method = "flr"};
  must(unprepare("a"));
  EXPECT_EQ(status(ClaimNode::kWhole).state, SanitizeState::available);
}

/// A claim was prepared, and its second device is unplugged. The kubelet asks for the claim again.
class ClaimThatLosesADevice : public ClaimSanitizing {
 protected:
  void SetUp() override {
    ask_for(Sanitize::required);
    must(prepare_both());
    node_.kernel.remove_function(ClaimNode::kPair);
    node_.kernel.remove_function(ClaimNode::kOtherOfPair);
    reset_.clear();
  }
  ClaimKeeper::Answer prepare_both() {
    return keeper_.serve(
        ClaimNode::request("a", {ClaimNode::whole(ClaimNode::kWhole), ClaimNode::whole(ClaimNode::kPair)}));
  }
};

TEST_F(ClaimThatLosesADevice, IsSanitizedBeforeItIsGivenUp) {
  ASSERT_FALSE(prepare_both());
  EXPECT_THAT(reset_, ElementsAre("0000:05:00.0 vfio-pci"));
  EXPECT_THAT(node_.record().claims, IsEmpty());
}

TEST_F(ClaimThatLosesADevice, IsPreparedWhileAVmRunsAndIsSanitizedAtItsEnd) {
  for (const bool asks_for_resets : {false, true}) {
    ask_for(asks_for_resets ? Sanitize::required : Sanitize::off);
    node_.users.held.emplace(ClaimNode::kWhole,
                             vfio::DeviceUser{.kind = vfio::DeviceUser::Kind::virtual_machine,
                                              .name = "tenant",
                                              .pid = 412,
                                              .what = "/dev/vfio/5"});
    answer_ = {.in_use = true};
    const auto again = prepare_both();
    ASSERT_FALSE(again);
    EXPECT_THAT(again.error().message, HasSubstr("could not be undone: "));
    EXPECT_THAT(must(gpus_with_claims(node_.kernel)).prepared, SizeIs(1));
  }
  node_.users.held.clear();
  answer_ = {.method = "flr"};
  reset_.clear();
  must(unprepare("a"));
  EXPECT_THAT(reset_, ElementsAre("0000:05:00.0 vfio-pci"));
  EXPECT_THAT(node_.record().claims, IsEmpty());
}

TEST_F(ClaimSanitizing, LeavesVgpusAlone) {
  ask_for(Sanitize::required);
  must(keeper_.serve(ClaimNode::request("a", {ClaimNode::vgpu(ClaimNode::kMdev, ClaimNode::kMdevType)})));
  must(unprepare("a"));
  EXPECT_THAT(reset_, IsEmpty());
}

TEST_F(ClaimSanitizing, EndsAClaimWithoutARecordThatCanBeRead) {
  ask_for(Sanitize::required);
  must(prepare("a", ClaimNode::kWhole));
  node_.kernel.file(kGpuHistoryFile, "{");
  reset_.clear();
  must(unprepare("a"));
  EXPECT_THAT(reset_, IsEmpty()) << "a record that cannot be read holds up no pod's end";
  const auto next = prepare("b", ClaimNode::kWhole);
  ASSERT_FALSE(next) << "and no later pod gets the GPU";
  EXPECT_EQ(next.error().code, Errc::malformed_host);
}

}  // namespace
}  // namespace ferry::host
