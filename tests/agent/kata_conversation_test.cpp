// SPDX-License-Identifier: Apache-2.0
// The agent's step and hostd's keeper on one host, each by the file that the other has written.
#include <chrono>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "agent/host_files.h"
#include "agent/kata/kata_step.h"
#include "agent/labels/own_labels.h"
#include "api/labels.h"
#include "kata-manager/controller/kata_keeper.h"
#include "tests/agent/snapshots.h"
#include "tests/kata-manager/gpu_artifact.h"
#include "tests/kata-manager/predicted_daemon.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using test::must;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kModeLabel = "nvidia.com/cc.mode.state";
constexpr const char* kClasses =
    "version: v2\nartifactsDir: /opt/art\nloadModules: false\nruntimeClasses:\n"
    "- {name: kata-a, artifacts: {url: \"file:///srv/gpu\"}}\n"
    "- {name: kata-a-snp, artifacts: {url: \"file:///srv/gpu\"}}\n";

class KataConversation : public testing::Test {
 protected:
  KataConversation() {
    test::add_gpu_artifact(scratch, {"kata-a", "kata-a-snp"});
    scratch.file(test::kMain, test::kMainText);
    scratch.file("sys/module/kvm_amd/parameters/sev_snp", "Y\n");
    daemon = std::make_unique<test::PredictedDaemon>(host);
    keeper = std::make_unique<kata::KataKeeper>(
        kata::KataKeeper::Uses{
            .host = &host,
            .writer = &writer,
            .asked = daemon.get(),
            .runtime_for = [this](const kata::ClassFile&) { return runtime(); },
            .devices = [] { return Result<kata::KataDevices>(kata::KataDevices{.gpus = 1, .mode = {}}); }},
        kata::KataKeeper::Pauses{
            .first = seconds(10), .longest = seconds(40), .lock = milliseconds(0), .proof = milliseconds(0)});
  }

  Result<kata::KataRuntime> runtime() const {
    kata::KataRuntime out;
    out.found_runtime.place = must(kata::runtime_place("containerd"));
    out.found_runtime.release = test::kRelease;
    out.asked = std::make_unique<test::AskedDaemon>(*daemon);
    out.control = std::make_unique<test::RestartOfDaemon>(*daemon);
    return out;
  }
  HostSide host_side() const { return must(read_host_side(host)); }

  /// One look of the agent, that has its turn whenever it asks for one, and what the API server makes of it.
  void look() {
    const HostSide side = host_side();
    const KataPlan plan = kata_plan(node, side, snapshot, nullptr);
    RolloutStep rollout_step;
    rollout_step.may_begin = true;
    const KataStep step = kata_step(node, side, snapshot, plan, rollout_step);
    trouble = step.trouble;
    if (step.file) must(write_desired_classes(host, *step.file));
    std::erase_if(node.labels, [](const auto& label) { return label.first.starts_with(api::kKataPrefix); });
    for (const std::string& handler : labelled_handlers(node, side))
      node.labels[api::kKataPrefix + handler] = "ready";
  }
  /// Until both have said all that there is to say.
  HostSide settle() {
    constexpr int kEnough = 12;
    for (int i = 0; i < kEnough; ++i) {
      look();
      keeper->round(now);
      now += minutes(1);
    }
    return host_side();
  }
  HostSide settle_in(const std::string& mode) {
    node.labels[kModeLabel] = mode;
    return settle();
  }
  static std::uint64_t generation_of(const HostSide& side) {
    return side.kata_written ? side.kata_written->generation : 0;
  }
  std::string runtimes() const { return host.read_file(test::kMain).value_or(""); }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  test::ModuleWriter writer;
  policy::NodeObject node = test::node_with({});
  KataSnapshot snapshot{.source = {.name = "ConfigMap gpus/kata", .texts = {test::config("kata", kClasses)}},
                        .pulls = {}};
  kata::KataKeeper::Clock::time_point now{seconds(1000)};
  std::unique_ptr<test::PredictedDaemon> daemon;
  std::unique_ptr<kata::KataKeeper> keeper;
  std::string trouble;
};

TEST_F(KataConversation, AConfidentialClassIsThereWhileTheNodesLabelAdmitsIt) {
  EXPECT_THAT(settle_in("off").kata.ready, ElementsAre("kata-a"));
  EXPECT_THAT(trouble, AllOf(HasSubstr("kata-a-snp: blocked: "), HasSubstr("confidential computing is off")));
  EXPECT_THAT(runtimes(), AllOf(HasSubstr("runtimes.kata-a]"), Not(HasSubstr("kata-a-snp"))));

  const HostSide on = settle_in("on");
  EXPECT_THAT(on.kata.ready, ElementsAre("kata-a", "kata-a-snp"));
  EXPECT_EQ(trouble, "");
  const int acts = daemon->acts;
  const HostSide ppcie = settle_in("ppcie");
  EXPECT_EQ(generation_of(ppcie), generation_of(on));
  EXPECT_EQ(ppcie.kata, on.kata);
  EXPECT_EQ(daemon->acts, acts);

  EXPECT_THAT(settle_in("failed").kata.ready, ElementsAre("kata-a"));
  EXPECT_THAT(runtimes(), Not(HasSubstr("kata-a-snp"))) << "its label went first, and then it";
  node.labels.erase(kModeLabel);
  EXPECT_THAT(settle().kata.ready, ElementsAre("kata-a", "kata-a-snp")) << "unknown is no reason to refuse";
}

}  // namespace
}  // namespace ferry::agent
