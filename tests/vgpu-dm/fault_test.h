// SPDX-License-Identifier: Apache-2.0
// Every single change of a run fails, hangs, and is the last one before death; then the same command runs
// again.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"
#include "tests/vfio/rebinds.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/apply/apply.h"

namespace ferry::test {

/// The faults of one run on one GPU. `Journey` is that run, on a new node:
/// - `Param`, from which it is made; `kGpu`, the GPU's address; `node`, with `kernel`, `host()` and `state()`
/// - `run()`, which returns the GPU's outcome; `profile()`, which it applies
/// - `lasting(state)`: the part of a state that a run after a death restores
/// - `can_hang(param, change)`: false for a change that is not tried to hang
/// - `kOutlivesFaults`: true if a run may succeed although a change fails or hangs. A run that is refused
///   because of a stuck change then writes nothing.
/// - `expect_settled()`: facts after a failed run; `expect_nothing_left()`: facts after the run that follows
template <typename Journey>
class FaultTest : public testing::TestWithParam<typename Journey::Param> {
 protected:
  using Kind = vgpu::GpuOutcome::Kind;

  FaultTest() {
    Journey model(this->GetParam());
    before_ = model.node.state();
    const vgpu::GpuOutcome made = model.run();
    EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
    after_ = model.node.state();
    changes_ = model.node.kernel.changes();
  }

  void each_change_fails() const {
    for (const int error : {EIO, EBUSY}) {
      for (std::size_t n = 1; n <= changes_.size(); ++n) {
        SCOPED_TRACE(testing::Message() << "change " << n << ", errno " << error);
        Journey journey(this->GetParam());
        journey.node.kernel.fail_change(n, error);
        const vgpu::GpuOutcome outcome = journey.run();
        if (Journey::kOutlivesFaults && outcome.kind == Kind::changed) {
          EXPECT_EQ(journey.node.state(), after_);
          continue;
        }
        EXPECT_EQ(outcome.kind, Kind::failed);
        expect_undone(journey, outcome.undo_errors);
      }
    }
  }

  void later_work_fails() const {
    Journey journey(this->GetParam());
    const vgpu::GpuOutcome outcome = journey.run();
    EXPECT_EQ(journey.node.state(), after_);
    expect_undone(journey, vgpu::put_back(journey.node.host(), journey.profile(), outcome));
  }

  void each_change_hangs() const {
    for (std::size_t n = 1; n <= changes_.size(); ++n) {
      if (!Journey::can_hang(this->GetParam(), changes_[n - 1])) continue;
      SCOPED_TRACE(n);
      Journey journey(this->GetParam());
      journey.node.kernel.hang_change(n);
      const vgpu::GpuOutcome hung = journey.run();
      if (Journey::kOutlivesFaults && hung.kind == Kind::changed) continue;
      EXPECT_EQ(code_of(hung.error), Errc::stuck) << message_of(hung.error);
      const std::size_t then = journey.node.kernel.changes().size();
      EXPECT_EQ(journey.run().kind, Kind::refused);
      if (Journey::kOutlivesFaults) {
        EXPECT_EQ(journey.node.kernel.changes().size(), then);
      }
      journey.node.kernel.release_stuck();
      expect_runs_again(journey);
    }
  }

  void each_change_is_the_last() const {
    for (std::size_t n = 1; n <= changes_.size(); ++n) {
      SCOPED_TRACE(n);
      Journey journey(this->GetParam());
      ASSERT_TRUE(dies([&] {
        journey.node.kernel.die_at_change(n);
        (void)journey.run();
      }));
      journey.node.kernel.adopt_vfs(Journey::kGpu);
      expect_runs_again(journey);
    }
  }

 private:
  void expect_undone(Journey& journey, const std::vector<Error>& undo_errors) const {
    for (const Error& undo : undo_errors) ADD_FAILURE() << undo.message;
    EXPECT_EQ(journey.node.state(), before_);
    journey.expect_settled();
    expect_runs_again(journey);
  }
  void expect_runs_again(Journey& journey) const {
    const vgpu::GpuOutcome again = journey.run();
    EXPECT_FALSE(again.error) << message_of(again.error);
    EXPECT_EQ(Journey::lasting(journey.node.state()), Journey::lasting(after_));
    journey.expect_settled();
    journey.expect_nothing_left();
    journey.node.kernel.forget_changes();
    EXPECT_EQ(journey.run().kind, Kind::already_so);
    EXPECT_THAT(journey.node.kernel.changes(), testing::IsEmpty());
  }

  std::string before_;
  std::string after_;
  std::vector<HostChange> changes_;
};

}  // namespace ferry::test
