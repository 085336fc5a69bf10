// SPDX-License-Identifier: Apache-2.0
// Every single change of the host fails, hangs and is the last one before death; then the same command runs
// again.
#include <cerrno>
#include <cstdlib>
#include <ostream>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry {
namespace {

using test::at;
using test::FakeKernel;
using Status = MoveResult::Status;

/// The drivers and overrides of all functions, as one comparable text.
std::string state(const FakeKernel& kernel) {
  std::string out;
  for (const char* address : {"0000:65:00.0", "0000:65:00.1", "0000:65:00.2", "0000:65:00.3"}) {
    out +=
        std::string(address) + " " + kernel.driver_of(address) + " (" + kernel.override_of(address) + ")\n";
  }
  return out;
}

struct Machine {
  Machine() {
    test::add_host_drivers(kernel);
    test::add_four_function_card(kernel);
  }
  Result<MoveOutcome> apply(Direction direction) {
    const MoveContext context{
        .host = &kernel, .writer = &kernel, .probe = &probe, .rules = test::gpu_rules(), .on_step = {}};
    return apply_moves(context, {.accelerators = {at("0000:65:00.0")}, .with = {}, .untouchable = {}},
                       direction);
  }
  void prepare(Direction direction) {
    if (direction == Direction::back) apply(Direction::to_vfio).value();
    kernel.forget_changes();
  }
  FakeKernel kernel;
  test::TableProbe probe;
};

struct Scene {
  Direction direction = Direction::to_vfio;
  std::size_t change = 0;  ///< counted from 1
};

void PrintTo(const Scene& scene, std::ostream* out) {
  *out << "change " << scene.change;
}

std::string name_of(const testing::TestParamInfo<Scene>& info) {
  return std::string(info.param.direction == Direction::to_vfio ? "Bind" : "Unbind") + "Change" +
         std::to_string(info.param.change);
}

// Every change that an undisturbed run makes, in both directions.
std::vector<Scene> scenes() {
  std::vector<Scene> out;
  for (const Direction direction : {Direction::to_vfio, Direction::back}) {
    Machine machine;
    machine.prepare(direction);
    machine.apply(direction).value();
    for (std::size_t n = 1; n <= machine.kernel.changes().size(); ++n) out.push_back({direction, n});
  }
  return out;
}

class EveryChange : public testing::TestWithParam<Scene> {
 protected:
  EveryChange() {
    Machine model;
    original_ = state(model.kernel);
    model.apply(Direction::to_vfio).value();
    moved_ = state(model.kernel);
    machine_.prepare(GetParam().direction);
  }
  const std::string& wanted() const {
    return GetParam().direction == Direction::to_vfio ? moved_ : original_;
  }
  void runs_again_to_the_wanted_state() {
    const auto again = machine_.apply(GetParam().direction);
    ASSERT_TRUE(again);
    EXPECT_NE(again->results.at(0).status, Status::failed)
        << (again->results[0].error ? again->results[0].error->message : "");
    EXPECT_EQ(state(machine_.kernel), wanted());
    // And from there the way back is still known, to the very state before the first run.
    ASSERT_TRUE(machine_.apply(Direction::back));
    EXPECT_EQ(state(machine_.kernel), original_);
    EXPECT_FALSE(machine_.kernel.exists("run/ferry/moves/41.json"));
  }
  Machine machine_;
  std::string original_;
  std::string moved_;
};

TEST_P(EveryChange, ThatFailsLeavesTheOldStateOrTheNewAndTheNextRunGetsThere) {
  for (const int error : {EBUSY, EIO}) {
    SCOPED_TRACE(error);
    Machine machine;
    machine.prepare(GetParam().direction);
    machine.kernel.fail_change(GetParam().change, error);
    const auto outcome = machine.apply(GetParam().direction);
    const bool failed = !outcome || outcome->results.at(0).status == Status::failed;
    EXPECT_TRUE(failed) << "a failed write went unnoticed";
    if (GetParam().direction == Direction::to_vfio) {
      const std::string now = state(machine.kernel);
      EXPECT_TRUE(now == original_ || now == moved_) << now;
    }
    ASSERT_TRUE(machine.apply(GetParam().direction));
    EXPECT_EQ(state(machine.kernel), wanted());
  }
}

TEST_P(EveryChange, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    machine_.kernel.die_at_change(GetParam().change);
    (void)machine_.apply(GetParam().direction);
    ::_exit(EXIT_FAILURE);  // it should have died
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS);
  runs_again_to_the_wanted_state();
}

TEST_P(EveryChange, ThatHangsIsLeftAloneUntilItReturns) {
  machine_.kernel.hang_change(GetParam().change);
  const auto outcome = machine_.apply(GetParam().direction);
  ASSERT_TRUE(outcome);
  const MoveResult& result = outcome->results.at(0);
  // A file of ours cannot hang: then the run simply went on.
  if (result.status == Status::failed && result.error->code == Errc::stuck) {
    machine_.kernel.forget_changes();
    const auto meanwhile = machine_.apply(GetParam().direction);
    ASSERT_TRUE(meanwhile);
    EXPECT_NE(meanwhile->results.at(0).status, Status::done);
    EXPECT_THAT(machine_.kernel.writes(), testing::IsEmpty()) << "written to a unit that hangs";
  }
  machine_.kernel.release_stuck();
  runs_again_to_the_wanted_state();
}

INSTANTIATE_TEST_SUITE_P(Moves, EveryChange, testing::ValuesIn(scenes()), name_of);

}  // namespace
}  // namespace ferry
