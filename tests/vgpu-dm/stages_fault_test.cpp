// SPDX-License-Identifier: Apache-2.0
// Every single change of the stages before vGPUs (MIG mode, virtual functions, GPU instances, mixed sizes)
// and behind them fails, hangs and is the last one before death; then the same command runs again.
#include <array>
#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/fault_test.h"
#include "tests/vgpu-dm/mig_node.h"

namespace ferry::vgpu {
namespace {

using test::MigNode;

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
  using Param = Way;
  static constexpr const char* kGpu = MigNode::kGpu;
  // A step that is tried again, and the list of type names, which is kept for convenience.
  static constexpr bool kOutlivesFaults = true;

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
  // GPU instances that a dead process would have removed may stay where they disturb no vGPU.
  static std::string lasting(const std::string& state) { return state.substr(state.find(':')); }
  static bool can_hang(const Way& /*way*/, const test::HostChange& /*change*/) { return true; }
  static void expect_settled() {}
  static void expect_nothing_left() {}
  MigNode node;

 private:
  const Way& way_;
};

class EveryStage : public test::FaultTest<Journey> {};

TEST_P(EveryStage, ThatFailsLeavesTheGpuAsItWas) {
  each_change_fails();
}

TEST_P(EveryStage, IsTakenBackWhereWhatComesBehindFails) {
  later_work_fails();
}

TEST_P(EveryStage, ThatHangsIsLeftAloneUntilItReturns) {
  each_change_hangs();
}

TEST_P(EveryStage, ThatIsTheLastBeforeDeathIsRepairedByTheNextRun) {
  each_change_is_the_last();
}

INSTANTIATE_TEST_SUITE_P(Ways, EveryStage, testing::ValuesIn(kWays),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace ferry::vgpu
