// SPDX-License-Identifier: Apache-2.0
// Virtual functions as the stage before vGPUs; and GPUs side by side.
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vgpu-dm/kind_node.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using Kind = GpuOutcome::Kind;
using test::KindNode;
using test::on;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kNumvfs = "0000:05:00.0/sriov_numvfs";

class EnablingFunctions : public testing::TestWithParam<const mdev::Framework*> {
 protected:
  GpuOutcome apply(const char* vgpus) { return node.apply(on("[0]", vgpus)).gpus.at(0); }
  GpuPlan plan(const char* vgpus) { return plan_profile(on("[0]", vgpus), node.snapshot()).gpus.at(0); }
  std::size_t functions() const { return node.kernel.vfs_of(KindNode::kGpu).size(); }
  /// The driver's tool below a root, which does what `effect` says: its exit status.
  void add_tool(const std::string& root, const std::function<int(bool on)>& effect) {
    node.kernel.file(root + "usr/lib/nvidia/sriov-manage", "");
    node.kernel.on_run([=, this](const HostCommand& command) {
      ran.push_back(command.root.string() + "|" + command.text());
      return effect(command.words.at(1) == "-e");
    });
  }
  int switch_functions(bool on) {
    node.kernel.enable_vfs(KindNode::kGpu, on ? KindNode::kVfs : 0);
    return 0;
  }

  /// Which change it is, behind the tool; between comes the file of names, where there is one and it is new.
  std::size_t first_vgpu() const {
    const bool kept =
        node.kernel.exists("run/ferry/hostd/vgpu-type-names.json") || GetParam() != &mdev::vendor_vfio();
    return kept ? 2 : 3;
  }

  KindNode node{GetParam(), 1, false};
  std::vector<std::string> ran;
};

INSTANTIATE_TEST_SUITE_P(Vfs, EnablingFunctions,
                         testing::Values(&mdev::mediated_on_functions(), &mdev::vendor_vfio()),
                         [](const auto& row) {
                           return row.param == &mdev::mediated_on_functions() ? "Mdev" : "VendorVfio";
                         });

TEST_P(EnablingFunctions, IsPlannedWithWhatComesThen) {
  const GpuPlan plan = this->plan("{T4-4Q: 3}");
  EXPECT_FALSE(plan.refusal) << test::message_of(plan.refusal);
  ASSERT_THAT(plan.steps, SizeIs(1));
  EXPECT_EQ(plan.steps[0].text(), "enable 8 virtual functions of 0000:05:00.0");
  EXPECT_EQ(plan.steps[0].why,
            "p.yaml:4 asks for vGPUs, and its driver nvidia offers no vGPU types; none of its 8 virtual "
            "functions is enabled");
  EXPECT_EQ(text(plan.then), "3 x T4-4Q");
}

TEST_P(EnablingFunctions, IsTheStageBeforeTheVgpus) {
  const GpuOutcome outcome = apply("{T4-4Q: 3}");
  EXPECT_EQ(outcome.kind, Kind::changed) << test::message_of(outcome.error);
  EXPECT_THAT(outcome.done, SizeIs(4));
  EXPECT_EQ(node.writes().at(0), std::string("8 > ") + kNumvfs);
  EXPECT_THAT(node.devices(), SizeIs(3));
  EXPECT_TRUE(assert_profile(on("[0]", "{T4-4Q: 3}"), node.snapshot().inventory));
  node.kernel.forget_changes();
  EXPECT_EQ(apply("{T4-4Q: 3}").kind, Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_P(EnablingFunctions, IsLeftWhereNoVgpuIsAsked) {
  EXPECT_EQ(apply("{}").kind, Kind::already_so);
  EXPECT_EQ(node.apply(on("[]", "{T4-4Q: 1}")).gpus.at(0).kind, Kind::unmanaged);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST_P(EnablingFunctions, IsNotBegunForWhatTheTableKnowsToBeImpossible) {
  const auto refusal = [&](const char* vgpus) { return test::message_of(plan(vgpus).refusal); };
  const std::string gpu = "p.yaml:5: GPU 0 (0000:05:00.0): ";
  EXPECT_EQ(refusal("{T4-4Q: 5}"), gpu + "no room for 5 x T4-4Q: 4 fit");
  EXPECT_EQ(refusal("{T4-1Q: 9}"), gpu + "no room for 9 x T4-1Q: 8 fit");
  EXPECT_EQ(refusal("{T4-8Q: 1, T4-4Q: 1}"),
            gpu + "T4-8Q (8192 MiB) and T4-4Q (4096 MiB) are of two sizes, and mixed-sizes is not set");
  EXPECT_THAT(refusal("{T4-5Q: 1}"), testing::StartsWith(gpu + "offers no type T4-5Q"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

// Its board could have virtual functions, and NVML is not there to be asked.
TEST_P(EnablingFunctions, IsNotTriedUnderAnOrdinaryDriver) {
  node.kernel.remove(mdev::host_driver_sign(test::at(KindNode::kGpu)));
  add_tool("", [this](bool on) { return switch_functions(on); });
  for (const char* vgpus : {"{T4-4Q: 3}", "{H200X-1-18C: 1}"}) {
    const GpuOutcome outcome = apply(vgpus);
    EXPECT_EQ(outcome.kind, Kind::refused);
    EXPECT_EQ(test::code_of(outcome.error), Errc::unsupported);
    EXPECT_EQ(test::message_of(outcome.error),
              "p.yaml:5: GPU 0 (0000:05:00.0): no parent devices found: its driver nvidia "
              "offers no vGPU types and is no vGPU host driver");
    EXPECT_THAT(test::hint_of(outcome.error), testing::HasSubstr("ferry doctor --for vgpu"));
  }
  EXPECT_THAT(ran, IsEmpty());
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  EXPECT_EQ(apply("{}").kind, Kind::already_so);
}

TEST_P(EnablingFunctions, IsLeftToTheDriversOwnTool) {
  add_tool("", [this](bool on) { return switch_functions(on); });
  EXPECT_EQ(apply("{T4-4Q: 1}").kind, Kind::changed);
  EXPECT_THAT(ran, ElementsAre("|/usr/lib/nvidia/sriov-manage -e 0000:05:00.0"));
  EXPECT_THAT(node.writes(), SizeIs(1)) << "the vGPU alone";
}

TEST_P(EnablingFunctions, TakesTheToolOfADriverContainer) {
  add_tool("run/nvidia/driver/", [this](bool on) { return switch_functions(on); });
  EXPECT_EQ(apply("{T4-4Q: 1}").kind, Kind::changed);
  EXPECT_THAT(ran, ElementsAre("run/nvidia/driver|/usr/lib/nvidia/sriov-manage -e 0000:05:00.0"));
}

TEST_P(EnablingFunctions, TriesTheToolAgainWhileSomebodyHasTheGpuOpen) {
  for (const int status : {1, 0}) {  // some releases say 0 of what failed
    ran.clear();
    node.pauses = 0;
    add_tool("", [=, this](bool on) { return !on || ran.size() == 3 ? switch_functions(on) : status; });
    EXPECT_EQ(apply("{T4-4Q: 1}").kind, Kind::changed) << status;
    EXPECT_THAT(ran, SizeIs(3));
    EXPECT_EQ(node.pauses, 2);
    node.kernel.enable_vfs(KindNode::kGpu, 0);
  }
}

TEST_P(EnablingFunctions, DoesNotMindAStatusOfFailureWhereTheyCame) {
  add_tool("", [this](bool on) { return switch_functions(on) + 1; });
  EXPECT_EQ(apply("{T4-4Q: 1}").kind, Kind::changed);
  EXPECT_THAT(ran, SizeIs(1));
}

// The way back from a vGPU that could not be made.
TEST_P(EnablingFunctions, TriesTheToolAgainToTakeThemAway) {
  for (const int status : {1, 0}) {
    ran.clear();
    int off = 0;
    add_tool("", [=, this](bool on) mutable { return on || ++off == 3 ? switch_functions(on) : status; });
    node.kernel.fail_change(first_vgpu(), EIO);
    const GpuOutcome outcome = apply("{T4-4Q: 1}");
    EXPECT_EQ(outcome.kind, Kind::failed);
    EXPECT_THAT(outcome.undo_errors, IsEmpty());
    EXPECT_EQ(functions(), 0U);
    EXPECT_THAT(ran, SizeIs(4));
  }
}

TEST_P(EnablingFunctions, SaysThatTheyStayedAfterFiveTries) {
  for (const int status : {1, 0}) {
    ran.clear();
    add_tool("", [=, this](bool on) { return on ? switch_functions(on) : status; });
    node.kernel.fail_change(first_vgpu(), EIO);
    const GpuOutcome outcome = apply("{T4-4Q: 1}");
    ASSERT_THAT(outcome.undo_errors, SizeIs(1));
    EXPECT_THAT(outcome.undo_errors.front().message,
                testing::HasSubstr(status == 0 ? "8 virtual functions stayed" : "it ended with status 1"));
    EXPECT_THAT(outcome.undo_errors.front().hint, testing::HasSubstr("nvidia-persistenced"));
    EXPECT_THAT(ran, SizeIs(6));
    node.kernel.enable_vfs(KindNode::kGpu, 0);
  }
}

TEST_P(EnablingFunctions, GivesUpAfterFiveTriesAndSaysWhy) {
  add_tool("", [](bool) { return 1; });
  const GpuOutcome outcome = apply("{T4-4Q: 1}");
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(
      test::message_of(outcome.error),
      "enable 8 virtual functions of 0000:05:00.0: run /usr/lib/nvidia/sriov-manage -e 0000:05:00.0: it "
      "ended with status 1");
  EXPECT_THAT(test::hint_of(outcome.error), testing::HasSubstr("nvidia-persistenced"));
  EXPECT_THAT(ran, SizeIs(5));
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
}

// In a container that has not the host's root, or no CAP_SYS_CHROOT for it.
TEST_P(EnablingFunctions, DoesNotTryAgainWhatItMayNot) {
  for (const bool with_tool : {false, true}) {
    SCOPED_TRACE(with_tool);
    if (with_tool) add_tool("", [this](bool on) { return switch_functions(on); });
    node.kernel.fail_change(1, EPERM);
    const GpuOutcome outcome = apply("{T4-4Q: 1}");
    EXPECT_EQ(outcome.kind, Kind::failed);
    EXPECT_THAT(test::message_of(outcome.error), testing::HasSubstr("Operation not permitted"));
    EXPECT_THAT(test::hint_of(outcome.error), testing::HasSubstr("CAP_SYS_CHROOT"));
    EXPECT_EQ(node.pauses, 0);
    EXPECT_EQ(functions(), 0U);
  }
}

TEST_P(EnablingFunctions, DoesNotBelieveAToolThatMadeNone) {
  add_tool("", [](bool) { return 0; });
  EXPECT_EQ(test::message_of(apply("{T4-4Q: 1}").error),
            "enable 8 virtual functions of 0000:05:00.0: none of its 8 virtual functions came");
}

// It unbinds the GPU, and fails before it binds it again.
TEST_P(EnablingFunctions, BindsTheGpuAgainThatTheToolLeftWithoutADriver) {
  for (const bool comes_back : {true, false}) {
    SCOPED_TRACE(comes_back);
    add_tool("", [this](bool) {
      if (!node.kernel.driver_of(KindNode::kGpu).empty()) {
        EXPECT_TRUE(node.kernel.write_attribute("sys/bus/pci/drivers/nvidia/unbind", KindNode::kGpu));
      }
      return 1;
    });
    if (!comes_back)
      node.kernel.fail_for_good({.path = "sys/bus/pci/drivers/nvidia/bind", .value = KindNode::kGpu}, EIO);
    const GpuOutcome outcome = apply("{T4-4Q: 1}");
    EXPECT_EQ(outcome.kind, Kind::failed);
    EXPECT_EQ(node.kernel.driver_of(KindNode::kGpu), comes_back ? "nvidia" : "");
    if (comes_back) {
      EXPECT_THAT(outcome.undo_errors, IsEmpty());
      continue;
    }
    EXPECT_THAT(test::message_of(outcome.error),
                testing::HasSubstr("it was left without its driver: write "));
    ASSERT_THAT(outcome.undo_errors, SizeIs(1));
    EXPECT_THAT(outcome.undo_errors.front().message,
                testing::HasSubstr("it is on no driver instead of on nvidia"));
  }
}

TEST_P(EnablingFunctions, TakesAwayWhatOnlyInPartCame) {
  add_tool("", [this](bool on) {
    node.kernel.enable_vfs(KindNode::kGpu, on ? 3 : 0);
    return 0;
  });
  const GpuOutcome outcome = apply("{T4-4Q: 1}");
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(test::message_of(outcome.error),
            "enable 8 virtual functions of 0000:05:00.0: only 3 of 8 virtual functions came");
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_EQ(functions(), 0U);
}

TEST_P(EnablingFunctions, IsUndoneWhereTheVgpusCannotBeMade) {
  node.kernel.fail_change(3, EIO);  // the second vGPU
  const GpuOutcome outcome = apply("{T4-4Q: 2}");
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_EQ(functions(), 0U);
  EXPECT_EQ(apply("{T4-4Q: 2}").kind, Kind::changed);
}

TEST_P(EnablingFunctions, IsNotUndoneUnderAVm) {
  // The second vGPU; between comes the file of names, where there is one.
  node.kernel.fail_change(GetParam() == &mdev::vendor_vfio() ? 4 : 3, EIO);
  node.probe.before_scan = [this](int) {
    for (const std::string& device : node.devices()) node.probe.hold(device.substr(device.find(' ') + 1));
  };
  const GpuOutcome outcome = apply("{T4-4Q: 2}");
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(functions(), KindNode::kVfs);
  EXPECT_THAT(node.devices(), SizeIs(1));
  EXPECT_THAT(outcome.undo_errors, SizeIs(1));
}

// What cannot be read may carry a vGPU.
TEST_P(EnablingFunctions, AreNotTakenAwayUnreadInARollback) {
  node.kernel.fail_change(first_vgpu() + 1, EIO);
  node.probe.before_scan = [this](int) {
    if (functions() == 0) return;
    const std::string function = "sys/devices/pci0000:00/" + node.vf(7);
    const bool vendor = GetParam() == &mdev::vendor_vfio();
    node.kernel.file(function + (vendor ? "/nvidia/current_vgpu_type"
                                        : "/mdev_supported_types/nvidia-232/available_instances"),
                     "?\n");
  };
  const GpuOutcome outcome = apply("{T4-4Q: 2}");
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(functions(), KindNode::kVfs);
  ASSERT_THAT(outcome.undo_errors, SizeIs(1));
}

TEST_P(EnablingFunctions, ArePlannedBackOnlyWhereAllIsRead) {
  node.kernel.enable_vfs(KindNode::kGpu, KindNode::kVfs);
  mdev::VgpuGpu now = node.snapshot().inventory.gpus.at(0);
  mdev::VgpuGpu before = now;
  before.function.sriov_numvfs = 0;
  EXPECT_THAT(plan_undo(before, now, {}), SizeIs(1));
  now.parents.back().problem = Error{.code = Errc::malformed_host, .message = "odd", .hint = {}};
  EXPECT_THAT(plan_undo(before, now, {}), IsEmpty());
}

// A VM has one of them as it is, without a vGPU.
TEST_P(EnablingFunctions, AreNotTakenFromAVmInARollback) {
  node.kernel.fail_change(first_vgpu(), EIO);
  node.probe.before_scan = [this](int) {
    if (functions() > 0) node.probe.hold(node.vf(5));
  };
  const GpuOutcome outcome = apply("{T4-4Q: 1}");
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(functions(), KindNode::kVfs);
  ASSERT_THAT(outcome.undo_errors, SizeIs(1));
  EXPECT_EQ(outcome.undo_errors.front().message,
            "undo: still to do: disable 8 virtual functions of 0000:05:00.0");
}

TEST(NewFunctions, MayGetTheirTypesLater) {
  KindNode node(&mdev::vendor_vfio(), 1, false);
  int pauses = 0;
  node.vendor.set_rule([&](const auto&, const auto&, const auto&) {
    return pauses < 2 ? std::optional(false) : std::nullopt;
  });
  VgpuHost host = node.host();
  host.pause = [&](auto) {
    if (++pauses == 2) node.vendor.refresh(KindNode::kGpu);
  };
  const GpuOutcome outcome = test::must(apply_profile(host, on("[0]", "{T4-4Q: 1}"))).gpus.at(0);
  EXPECT_EQ(outcome.kind, Kind::changed) << test::message_of(outcome.error);
  EXPECT_EQ(pauses, 2);
}

// A VM that nobody saw has taken the first vGPU, and its removal is refused: what it is on stays.
TEST(UndoOfFunctions, WaitsForVgpusThatDoNotGo) {
  KindNode node(&mdev::vendor_vfio(), 1, false);
  node.kernel.fail_change(4, EIO);
  node.probe.before_scan = [&](int) {
    for (const std::string& device : node.devices()) node.vendor.hold(device.substr(device.find(' ') + 1));
  };
  const GpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 2}")).gpus.at(0);
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(node.kernel.vfs_of(KindNode::kGpu).size(), KindNode::kVfs);
  EXPECT_THAT(node.devices(), SizeIs(1));
  EXPECT_THAT(outcome.undo_errors, SizeIs(1));
}

// Whoever fills new functions at once, as KubeVirt does, may have started a VM before our next stage.
TEST(LaterStages, AskAnewWhoUsesWhatCameMeanwhile) {
  KindNode node(&mdev::mediated_on_functions(), 1, false);
  node.kernel.on_vfs(
      [&](const std::string& function) {
        if (!node.devices().empty()) return;
        node.mdev.add_device(function, "nvidia-231", KindNode::kUuid);
        node.probe.hold(KindNode::kUuid);
      },
      [](const std::string&) {});
  const GpuOutcome outcome = node.apply(on("[0]", "{T4-4Q: 1}")).gpus.at(0);
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(test::code_of(outcome.error), Errc::refused) << test::message_of(outcome.error);
  ASSERT_THAT(node.devices(), SizeIs(1));
  EXPECT_TRUE(node.devices()[0].ends_with(KindNode::kUuid)) << node.devices()[0];
}

TEST_P(EnablingFunctions, SaysThatTheyHaveNoTypes) {
  node.mdev.add_vf_parents(KindNode::kGpu, {});
  KindNode other(&mdev::mediated_on_functions(), 1, false);
  other.mdev.add_vf_parents(KindNode::kGpu, {});
  const GpuOutcome outcome = other.apply(on("[0]", "{T4-4Q: 1}")).gpus.at(0);
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(
      test::message_of(outcome.error),
      "enable 8 virtual functions of 0000:05:00.0: they are there, and its driver nvidia offers no vGPU "
      "types on its 8 virtual functions");
  EXPECT_THAT(other.kernel.vfs_of(KindNode::kGpu), IsEmpty());
}

TEST_P(EnablingFunctions, IsLeftAloneWhileTheWriteHangs) {
  node.kernel.hang_change(1);
  EXPECT_EQ(test::code_of(apply("{T4-4Q: 1}").error), Errc::stuck);
  EXPECT_EQ(test::code_of(apply("{T4-4Q: 1}").error), Errc::stuck);
  EXPECT_EQ(functions(), 0U);
  node.kernel.release_stuck();
  EXPECT_EQ(apply("{T4-4Q: 1}").kind, Kind::changed);
}

TEST_P(EnablingFunctions, FailsWhereTheDriverTakesNone) {
  node.kernel.fail_change(1, ENOENT);
  const GpuOutcome outcome = apply("{T4-4Q: 1}");
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(node.pauses, 0) << "a write is not tried again";
  EXPECT_THAT(outcome.done, IsEmpty());
}

class SideBySide : public testing::TestWithParam<const mdev::Framework*> {};

INSTANTIATE_TEST_SUITE_P(Kinds, SideBySide, testing::ValuesIn(test::frameworks()),
                         [](const auto& row) { return test::name_of(row.param); });

TEST_P(SideBySide, GpusWaitForTheirDriversTogether) {
  constexpr unsigned kGpus = 4;
  constexpr std::chrono::milliseconds kWrite{600};
  KindNode node(GetParam(), kGpus);
  node.kernel.take_time("sys/bus/pci/devices/*/mdev_supported_types/*/create", kWrite);
  node.kernel.take_time("sys/bus/pci/devices/*/nvidia/current_vgpu_type", kWrite);
  std::set<std::string> seen;
  const auto begin = std::chrono::steady_clock::now();
  const auto outcome = apply_profile(node.host(), on("all", "{T4-8Q: 2}"),
                                     [&](const VgpuStep& step, const auto&) { seen.insert(step.text()); });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status(), ExitStatus::done);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kWrite * kGpus * 2) << "one after the other";
  EXPECT_THAT(seen, SizeIs(kGpus * 2));
  for (unsigned i = 0; i < kGpus; ++i) {
    EXPECT_EQ(outcome->gpus.at(i).index, i);
    EXPECT_THAT(node.devices(KindNode::gpu(i)), SizeIs(2));
  }
}

// More than go at a time: a VM may start while the last ones wait for their turn.
TEST_P(SideBySide, WhoWaitsIsLookedAtAgain) {
  constexpr unsigned kGpus = 18;
  KindNode node(GetParam(), kGpus);
  node.make(on("all", "{T4-16Q: 1}"));
  node.probe.before_scan = [&](int look) {
    if (look != 3) return;  // behind the first one, and the one right before the first write
    for (unsigned i = 0; i < kGpus; ++i) {
      for (const std::string& device : node.devices(KindNode::gpu(i)))
        node.probe.hold(device.substr(device.find(' ') + 1));
    }
  };
  node.probe.looks = 0;
  const VgpuOutcome outcome = node.apply(on("all", "{}"));
  EXPECT_GE(node.probe.looks, 4);
  const auto refused = std::ranges::count(outcome.gpus, Kind::refused, &GpuOutcome::kind);
  EXPECT_GE(refused, 1);
  for (unsigned i = 0; i < kGpus; ++i) {
    const bool stayed = outcome.gpus.at(i).kind == Kind::refused;
    EXPECT_THAT(node.devices(KindNode::gpu(i)), SizeIs(stayed ? 1 : 0));
  }
}

TEST_P(SideBySide, OneThatFailsKeepsNoneOfTheOthers) {
  KindNode node(GetParam(), 3);
  node.kernel.fail_change(2, EIO);
  const VgpuOutcome outcome = node.apply(on("all", "{T4-8Q: 2}"));
  EXPECT_EQ(outcome.status(), ExitStatus::failed);
  for (unsigned i = 0; i < 3; ++i) {
    const bool failed = outcome.gpus.at(i).kind == Kind::failed;
    EXPECT_THAT(node.devices(KindNode::gpu(i)), SizeIs(failed ? 0 : 2));
  }
  EXPECT_EQ(std::ranges::count(outcome.gpus, Kind::failed, &GpuOutcome::kind), 1);
}

}  // namespace
}  // namespace ferry::vgpu
