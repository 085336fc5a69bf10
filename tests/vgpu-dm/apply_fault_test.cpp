// SPDX-License-Identifier: Apache-2.0
// Every single write fails, hangs and is the last one before death; then the same command runs again.
#include <cerrno>
#include <cstdlib>
#include <ostream>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::GpuNode;
using test::profile;

/// From half-size vGPUs on both GPUs to quarter-size ones, one of which is there already, or to none.
class Scenery {
 public:
  explicit Scenery(bool removing) : removing_(removing) {
    node.make(
        profile("  - {devices: [0], vgpu-devices: {T4-8Q: 1, T4-8C: 1}}\n"
                "  - {devices: [1], vgpu-devices: {T4-4Q: 1, T4-4C: 1}}\n"));
  }
  Result<VgpuOutcome> run(const StepObserver& observe = {}) {
    if (removing_) return remove_vgpus(node.host(), {}, observe);
    return apply_profile(node.host(), desired(), observe);
  }
  static Profile desired() {
    return profile(
        "  - {devices: all, vgpu-devices: {}}\n"
        "  - {devices: [0, 1], vgpu-devices: {T4-4Q: 3}}\n");
  }
  GpuNode node;

 private:
  bool removing_;
};

struct Moment {
  bool removing = false;
  std::size_t write = 0;  ///< counted from 1
};
void PrintTo(const Moment& moment, std::ostream* out) {
  *out << "write " << moment.write;
}

constexpr std::size_t kWritesApplying = 8;
constexpr std::size_t kWritesRemoving = 4;

// Not found by running: the list is made anew in every process that runs one test of this file.
std::vector<Moment> moments() {
  std::vector<Moment> out;
  for (std::size_t n = 1; n <= kWritesApplying; ++n) out.push_back({.removing = false, .write = n});
  for (std::size_t n = 1; n <= kWritesRemoving; ++n) out.push_back({.removing = true, .write = n});
  return out;
}

TEST(Moments, AreAllThatAnUndisturbedRunHas) {
  for (const bool removing : {false, true}) {
    Scenery scenery(removing);
    ASSERT_TRUE(scenery.run());
    EXPECT_EQ(scenery.node.kernel.changes().size(), removing ? kWritesRemoving : kWritesApplying);
  }
}

class EveryWrite : public testing::TestWithParam<Moment> {
 protected:
  EveryWrite() : scenery_(GetParam().removing) {
    Scenery model(GetParam().removing);
    before_ = model.node.state();
    const auto outcome = model.run().value();
    for (const GpuOutcome& gpu : outcome.gpus) EXPECT_FALSE(gpu.error) << test::message_of(gpu.error);
    after_ = model.node.state();
  }
  /// The state of each GPU, apart.
  static std::vector<std::string> by_gpu(const std::string& state) {
    std::vector<std::string> out(2);
    std::string line;
    for (const char c : state) {
      line += c;
      if (c != '\n') continue;
      out[line.starts_with(GpuNode::kFirst) ? 0 : 1] += line;
      line.clear();
    }
    return out;
  }
  void runs_again_to_the_desired_state() {
    const auto again = scenery_.run();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->status(), ExitStatus::done);
    EXPECT_EQ(scenery_.node.state(), after_);
    scenery_.node.kernel.forget_changes();
    ASSERT_TRUE(scenery_.run());
    EXPECT_THAT(scenery_.node.kernel.changes(), testing::IsEmpty());
  }
  Scenery scenery_;
  std::string before_;
  std::string after_;
};

TEST_P(EveryWrite, ThatFailsLeavesItsGpuAsItWasAndTheOtherAsAsked) {
  for (const int error : {EINVAL, EIO, EAGAIN}) {
    SCOPED_TRACE(error);
    Scenery scenery(GetParam().removing);
    scenery.node.kernel.fail_change(GetParam().write, error);
    const auto outcome = scenery.run();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->status(), ExitStatus::failed);
    const auto now = by_gpu(scenery.node.state());
    for (std::size_t gpu = 0; gpu < 2; ++gpu) {
      const bool failed = outcome->gpus.at(gpu).kind == Kind::failed;
      EXPECT_EQ(now[gpu], by_gpu(failed ? before_ : after_)[gpu]) << "GPU " << gpu;
      if (failed) {
        EXPECT_EQ(test::code_of(outcome->gpus[gpu].error), std::error_code(error, std::generic_category()));
        EXPECT_THAT(outcome->gpus[gpu].undo_errors, testing::IsEmpty());
      }
    }
  }
}

TEST_P(EveryWrite, ThatFailsIsMadeByTheNextRun) {
  scenery_.node.kernel.fail_change(GetParam().write, EIO);
  ASSERT_TRUE(scenery_.run());
  runs_again_to_the_desired_state();
}

TEST_P(EveryWrite, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    scenery_.node.kernel.die_at_change(GetParam().write);
    (void)scenery_.run();
    ::_exit(EXIT_FAILURE);  // it should have died
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
  runs_again_to_the_desired_state();
}

TEST_P(EveryWrite, ThatHangsIsLeftAloneUntilItReturnsAndTheOtherGpuGoesOn) {
  scenery_.node.kernel.hang_change(GetParam().write);
  const auto outcome = scenery_.run();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status(), ExitStatus::failed);
  std::size_t stuck = 2;
  for (std::size_t gpu = 0; gpu < 2; ++gpu) {
    if (outcome->gpus.at(gpu).kind == Kind::failed) stuck = gpu;
  }
  ASSERT_LT(stuck, 2U);
  EXPECT_EQ(test::code_of(outcome->gpus[stuck].error), Errc::stuck);
  const auto now = by_gpu(scenery_.node.state());
  EXPECT_EQ(now[1 - stuck], by_gpu(after_)[1 - stuck]);

  // Nothing more is written to it, by this run's undo or by the next one.
  std::vector<std::string> tried;
  const auto again =
      scenery_.run([&](const VgpuStep& step, const Result<>&) { tried.push_back(step.text()); });
  ASSERT_TRUE(again);
  EXPECT_EQ(test::code_of(again->gpus[stuck].error), Errc::stuck);
  EXPECT_THAT(tried, testing::IsEmpty());
  EXPECT_EQ(by_gpu(scenery_.node.state())[stuck], now[stuck]);

  scenery_.node.kernel.release_stuck();
  runs_again_to_the_desired_state();
}

INSTANTIATE_TEST_SUITE_P(Vgpus, EveryWrite, testing::ValuesIn(moments()), [](const auto& row) {
  return std::string(row.param.removing ? "Removing" : "Applying") + std::to_string(row.param.write);
});

}  // namespace
}  // namespace ferry::vgpu
