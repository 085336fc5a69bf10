// SPDX-License-Identifier: Apache-2.0
// Every single change of the stages before vGPUs (MIG mode, virtual functions, GPU instances, mixed sizes)
// and behind them fails, hangs and is the last one before death; then the same command runs again.
#include <cerrno>
#include <cstdlib>
#include <ostream>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/mig_node.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::code_of;
using test::message_of;
using test::MigNode;
using testing::IsEmpty;

/// From one state of the GPU to another, and who switches its virtual functions.
struct Way {
  const char* name;
  const char* from;  ///< vGPUs; nullptr: as after a boot, without virtual functions
  const char* to;
  bool mixed = false;
  bool from_mixed = false;
  bool tool = false;   ///< the driver's own, else the kernel's attribute
  bool whole = false;  ///< it shall have no virtual functions either
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

constexpr const char* kTwoKinds = "{H200X-3-71C: 1, H200X-1-18C: 1}";
constexpr const char* kTwoSizes = "{H200X-70C: 1, H200X-35C: 1}";
constexpr std::array kWays = {
    Way{.name = "FromBootToTimeSliced", .from = nullptr, .to = "{H200X-35C: 2}"},
    Way{.name = "FromBootToTimeSlicedByTool", .from = nullptr, .to = "{H200X-35C: 2}", .tool = true},
    Way{.name = "FromBootToMig", .from = nullptr, .to = kTwoKinds},
    Way{.name = "FromBootToMixedSizes", .from = nullptr, .to = kTwoSizes, .mixed = true},
    Way{.name = "ToOtherInstances", .from = "{H200X-2-35C: 3}", .to = kTwoKinds},
    Way{.name = "FromMigToTimeSliced", .from = "{H200X-2-35C: 2}", .to = "{H200X-35C: 2}"},
    Way{.name = "FromMigToTimeSlicedByTool",
        .from = "{H200X-2-35C: 2}",
        .to = "{H200X-35C: 2}",
        .tool = true},
    Way{.name = "FromMigToMixedSizes", .from = "{H200X-2-35C: 2}", .to = kTwoSizes, .mixed = true},
    Way{.name = "FromMixedSizesToOne", .from = "{H200X-70C: 1}", .to = "{H200X-35C: 4}", .from_mixed = true},
    Way{.name = "FromTimeSlicedToMig", .from = "{H200X-35C: 2}", .to = kTwoKinds},
    Way{.name = "FromMigToWhole", .from = "{H200X-2-35C: 2}", .to = "{}", .whole = true},
    Way{.name = "FromMixedSizesToWhole",
        .from = "{H200X-70C: 1}",
        .to = "{}",
        .from_mixed = true,
        .whole = true},
};

class Journey {
 public:
  explicit Journey(const Way& way) : way_(way) {
    if (way.tool) {
      node.kernel.file("usr/lib/nvidia/sriov-manage", "");
      node.kernel.on_run([this](const HostCommand& command) {
        node.kernel.enable_vfs(MigNode::kGpu, command.words.at(1) == "-e" ? MigNode::kVfs : 0);
        return 0;
      });
    }
    if (way.from != nullptr) node.make(way.from, way.from_mixed);
  }
  Profile profile() const {
    Profile profile = test::on("[0]", way_.to);
    profile.items.front().mixed_sizes = way_.mixed;
    profile.items.front().whole = way_.whole;
    return profile;
  }
  GpuOutcome run() { return node.apply(profile()); }
  MigNode node;

 private:
  const Way& way_;
};

class EveryStage : public testing::TestWithParam<Way> {
 protected:
  EveryStage() {
    Journey model(GetParam());
    before_ = model.node.state();
    const GpuOutcome made = model.run();
    EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
    after_ = model.node.state();
    changes_ = model.node.kernel.changes().size();
  }
  // GPU instances that a dead process would have taken away may stay where they are in nobody's way.
  static std::string vgpus(const std::string& state) { return state.substr(state.find(':')); }
  void runs_again(Journey& journey) const {
    const GpuOutcome again = journey.run();
    EXPECT_FALSE(again.error) << message_of(again.error);
    EXPECT_EQ(vgpus(journey.node.state()), vgpus(after_));
    journey.node.kernel.forget_changes();
    EXPECT_EQ(journey.run().kind, Kind::already_so);
    EXPECT_THAT(journey.node.kernel.changes(), IsEmpty());
  }
  std::string before_;
  std::string after_;
  std::size_t changes_ = 0;
};

TEST_P(EveryStage, ThatFailsLeavesTheGpuAsItWas) {
  for (const int error : {EIO, EBUSY}) {
    for (std::size_t n = 1; n <= changes_; ++n) {
      SCOPED_TRACE(testing::Message() << "change " << n << ", errno " << error);
      Journey journey(GetParam());
      journey.node.kernel.fail_change(n, error);
      const GpuOutcome outcome = journey.run();
      // What is tried again, and the list of type names, which is kept for convenience.
      if (outcome.kind == Kind::changed) {
        EXPECT_EQ(journey.node.state(), after_);
        continue;
      }
      EXPECT_EQ(outcome.kind, Kind::failed);
      EXPECT_THAT(outcome.undo_errors, IsEmpty()) << outcome.undo_errors.front().message;
      EXPECT_EQ(journey.node.state(), before_);
      runs_again(journey);
    }
  }
}

TEST_P(EveryStage, IsTakenBackWhereWhatComesBehindFails) {
  Journey journey(GetParam());
  const GpuOutcome outcome = journey.run();
  EXPECT_EQ(journey.node.state(), after_);
  const auto errors = put_back(journey.node.host(), journey.profile(), outcome);
  EXPECT_THAT(errors, IsEmpty()) << errors.front().message;
  EXPECT_EQ(journey.node.state(), before_);
  runs_again(journey);
}

TEST_P(EveryStage, ThatHangsIsLeftAloneUntilItReturns) {
  for (std::size_t n = 1; n <= changes_; ++n) {
    SCOPED_TRACE(n);
    Journey journey(GetParam());
    journey.node.kernel.hang_change(n);
    const GpuOutcome hung = journey.run();
    if (hung.kind == Kind::changed) continue;
    EXPECT_EQ(code_of(hung.error), Errc::stuck) << message_of(hung.error);
    const std::size_t then = journey.node.kernel.changes().size();
    EXPECT_EQ(journey.run().kind, Kind::refused);
    EXPECT_EQ(journey.node.kernel.changes().size(), then);
    journey.node.kernel.release_stuck();
    runs_again(journey);
  }
}

TEST_P(EveryStage, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  for (std::size_t n = 1; n <= changes_; ++n) {
    SCOPED_TRACE(n);
    Journey journey(GetParam());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      journey.node.kernel.die_at_change(n);
      (void)journey.run();
      ::_exit(EXIT_FAILURE);  // it should have died
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
    journey.node.kernel.adopt_vfs(MigNode::kGpu);
    runs_again(journey);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EveryStage, testing::ValuesIn(kWays),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace ferry::vgpu
