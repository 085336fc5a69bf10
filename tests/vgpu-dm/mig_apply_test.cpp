// SPDX-License-Identifier: Apache-2.0
// MIG-backed vGPUs and vGPUs of different sizes: what NVML does is a stage of its own on each side of the
// virtual functions.
#include <cerrno>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "mdev/called_gpu_management.h"
#include "tests/support/fake_mig.h"
#include "tests/support/must.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/apply.h"

namespace ferry {
namespace {

using Kind = GpuOutcome::Kind;
using test::code_of;
using test::hint_of;
using test::message_of;
using test::must;
using test::on;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A node with one H200, without virtual functions and out of MIG mode, as after a boot.
class MigNode {
 public:
  static constexpr const char* kGpu = "0000:17:00.0";
  static constexpr unsigned kVfs = 8;

  MigNode() {
    kernel.add_driver({.name = "nvidia", .ids = {"10de:2335"}, .sriov = true});
    kernel.add_function({.address = kGpu,
                         .ids = "10de:2335",
                         .subsystem_ids = "10de:18be",
                         .class_code = 0x030200,
                         .group = 17,
                         .driver = "nvidia",
                         .totalvfs = kVfs});
    vendor.add_gpu(kGpu, test::h200_types());
  }
  VgpuHost host() {
    return {.host = kernel,
            .writer = kernel,
            .uses = probe,
            .rules = {.vendors = {0x10de}, .classes = {PciClass::vga, PciClass::display_3d}},
            .node = "node-a",
            .pause = [](auto) {},
            .management = with_library ? &management : nullptr};
  }
  GpuOutcome apply(const Profile& profile) {
    steps.clear();
    return must(apply_profile(host(), profile,
                              [this](const VgpuStep& step, const Result<>& done) {
                                steps.push_back(step.text() + (done ? "" : ": " + done.error().message));
                              }))
        .gpus.at(0);
  }
  void make(const char* vgpus) {
    const GpuOutcome made = apply(on("[0]", vgpus));
    if (made.error) throw std::logic_error(made.error->message);
    kernel.forget_changes();
  }
  /// Everything that may differ: mode, functions, instances, vGPUs.
  std::string state() {
    const ManagedGpu gpu = must(mig.read(test::at(kGpu)));
    std::string out = gpu.mig == GpuSwitch::on ? "MIG" : gpu.mixed_sizes == GpuSwitch::on ? "mixed" : "equal";
    out += " " + std::to_string(kernel.vfs_of(kGpu).size());
    for (const std::string& instance : mig.instances(kGpu)) out += " " + instance;
    out += ":";
    for (const std::string& device : vendor.devices_on(kGpu)) out += " " + device;
    return out;
  }

  test::FakeKernel kernel;
  test::FakeVendorVfio vendor{kernel};
  test::FakeMig mig{kernel, vendor};
  test::TableProbe probe;
  CalledGpuManagement management{kernel};
  bool with_library = true;
  std::vector<std::string> steps;
};

constexpr const char* kTwoKinds = "{H200X-1-18C: 2, H200X-2-35C: 1}";

TEST(MigApply, FromABootToMigBackedVgpus) {
  MigNode node;
  const GpuOutcome made = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_THAT(node.steps,
              ElementsAre("switch MIG mode on on 0000:17:00.0", "enable 8 virtual functions of 0000:17:00.0",
                          "make a GPU instance 2g.35gb on 0000:17:00.0",
                          "make a GPU instance 1g.18gb on 0000:17:00.0",
                          "make a GPU instance 1g.18gb on 0000:17:00.0", "create H200X-1-18C on 0000:17:00.4",
                          "create H200X-1-18C on 0000:17:00.5", "create H200X-2-35C on 0000:17:00.6"));
  EXPECT_EQ(node.state(),
            "MIG 8 1g.18gb 1g.18gb 2g.35gb: H200X-1-18C 0000:17:00.4 H200X-1-18C 0000:17:00.5 H200X-2-35C "
            "0000:17:00.6");
  node.kernel.forget_changes();
  EXPECT_EQ(node.apply(on("[0]", kTwoKinds)).kind, Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MigApply, WhatFitsStaysOnItsInstance) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  node.vendor.hold("0000:17:00.4");
  node.probe.hold("0000:17:00.4");
  EXPECT_EQ(node.apply(on("[0]", kTwoKinds)).kind, Kind::changed);
  EXPECT_THAT(node.steps,
              ElementsAre("make a GPU instance 2g.35gb on 0000:17:00.0",
                          "make a GPU instance 1g.18gb on 0000:17:00.0", "create H200X-1-18C on 0000:17:00.5",
                          "create H200X-2-35C on 0000:17:00.6"));
}

TEST(MigApply, InstancesInTheWayGoBehindTheirVgpus) {
  MigNode node;
  node.make("{H200X-1-18C: 7}");
  EXPECT_EQ(node.apply(on("[0]", "{H200X-3-71C: 2}")).kind, Kind::changed);
  EXPECT_THAT(node.state(), "MIG 8 3g.71gb 3g.71gb: H200X-3-71C 0000:17:00.4 H200X-3-71C 0000:17:00.5");
}

TEST(MigApply, AndBackToTimeSlicedOnes) {
  MigNode node;
  node.make(kTwoKinds);
  EXPECT_EQ(node.apply(on("[0]", "{H200X-35C: 2}")).kind, Kind::changed);
  EXPECT_THAT(
      node.steps,
      ElementsAre("remove H200X-1-18C from 0000:17:00.4", "remove H200X-1-18C from 0000:17:00.5",
                  "remove H200X-2-35C from 0000:17:00.6", "disable 8 virtual functions of 0000:17:00.0",
                  "switch MIG mode off on 0000:17:00.0", "enable 8 virtual functions of 0000:17:00.0",
                  "create H200X-35C on 0000:17:00.4", "create H200X-35C on 0000:17:00.5"));
}

TEST(MigApply, AVmKeepsTheModeItNeeds) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  node.probe.hold("0000:17:00.4");
  const std::string before = node.state();
  const GpuOutcome refused = node.apply(on("[0]", "{H200X-35C: 1}"));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("VM render"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  EXPECT_EQ(node.state(), before);
}

TEST(MigApply, IsRefusedWhereNobodyCanSeeToIt) {
  MigNode node;
  node.with_library = false;
  GpuOutcome refused = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_EQ(code_of(refused.error), Errc::unsupported);
  node.with_library = true;
  node.kernel.on_call({});
  refused = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(code_of(refused.error), Errc::unsupported);
  EXPECT_THAT(message_of(refused.error),
              HasSubstr("p.yaml:4: GPU 0 (0000:17:00.0): its vGPUs need GPU instances "
                        "(MIG), which NVML alone can see to: read what NVML says of "
                        "0000:17:00.0"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MigApply, MoreThanFitIsRefusedBeforeAnythingIsDone) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  const GpuOutcome refused = node.apply(on("[0]", "{H200X-3-71C: 3}"));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("3 x H200X-3-71C"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MigApply, SaysThatAResetIsDue) {
  MigNode node;
  node.mig.needs_reset = true;
  const std::string before = node.state();
  const GpuOutcome failed = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(failed.kind, Kind::failed);
  EXPECT_THAT(message_of(failed.error),
              HasSubstr("MIG mode is switched on, but not before the GPU is reset"));
  EXPECT_EQ(node.apply(on("[0]", kTwoKinds)).kind, Kind::refused);
  EXPECT_EQ(hint_of(failed.error), "reboot the node, then apply again");
}

TEST(MigApply, DoesNotBelieveTheLibrary) {
  MigNode node;
  node.make("{H200X-1-18C: 1}");
  const std::string before = node.state();
  node.mig.swallow = true;
  const GpuOutcome failed = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(failed.kind, Kind::failed);
  EXPECT_THAT(message_of(failed.error), HasSubstr("the driver took it, but it is not so"));
  EXPECT_THAT(failed.undo_errors, IsEmpty());
  EXPECT_EQ(node.state(), before);
}

TEST(MixedSizes, AreSwitchedOnBeforeTheFirstVgpu) {
  MigNode node;
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 2}");
  EXPECT_EQ(node.apply(mixed).kind, Kind::refused) << "one size is the rule";
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
  mixed.items[0].mixed_sizes = true;
  const GpuOutcome made = node.apply(mixed);
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_EQ(node.state(), "mixed 8: H200X-35C 0000:17:00.5 H200X-35C 0000:17:00.6 H200X-70C 0000:17:00.4");
  node.kernel.forget_changes();
  EXPECT_EQ(node.apply(mixed).kind, Kind::already_so);
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

TEST(MixedSizes, AreNoMoreThanThereAreFunctions) {
  MigNode node;
  node.make("{}");
  node.kernel.enable_vfs(MigNode::kGpu, MigNode::kVfs);
  must(node.mig.set_mixed_sizes(test::at(MigNode::kGpu), true));
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 8}");
  mixed.items[0].mixed_sizes = true;
  const GpuOutcome refused = node.apply(mixed);
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("no room for 8 x H200X-35C: 8 fit"));
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

// Without a vGPU host driver nothing is begun.
TEST(MigApply, IsRefusedUnderAnOrdinaryDriver) {
  MigNode node;
  node.mig.vgpu_host = false;
  const GpuOutcome refused = node.apply(on("[0]", kTwoKinds));
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("its driver is not one that makes vGPUs"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

// Asked before the first vGPU goes, so that the mode it had is known when something fails.
TEST(MigApply, TheWayBackFromTimeSlicedOnesKnowsTheMode) {
  MigNode model;
  model.make(kTwoKinds);
  const std::string before = model.state();
  ASSERT_EQ(model.apply(on("[0]", "{H200X-35C: 2}")).kind, Kind::changed);
  const std::size_t changes = model.kernel.changes().size();
  for (std::size_t n = 1; n <= changes; ++n) {
    SCOPED_TRACE(n);
    MigNode node;
    node.make(kTwoKinds);
    node.kernel.fail_change(n, EIO);
    const GpuOutcome failed = node.apply(on("[0]", "{H200X-35C: 2}"));
    if (failed.kind == Kind::changed) continue;  // the list of names
    EXPECT_EQ(node.state(), before) << (failed.undo_errors.empty() ? "" : failed.undo_errors[0].message);
  }
}

TEST(MixedSizes, AreNotSwitchedOnUnderVgpusThatStay) {
  MigNode node;
  node.make("{H200X-35C: 1}");
  Profile mixed = on("[0]", "{H200X-70C: 1, H200X-35C: 1}");
  mixed.items[0].mixed_sizes = true;
  const GpuOutcome refused = node.apply(mixed);
  EXPECT_EQ(refused.kind, Kind::refused);
  EXPECT_THAT(message_of(refused.error), HasSubstr("only while the GPU carries nothing"));
  EXPECT_THAT(node.kernel.changes(), IsEmpty());
}

/// From one MIG-backed vGPU to others that need other instances; and from a boot.
class MigTransition {
 public:
  explicit MigTransition(bool from_boot) {
    if (!from_boot) node.make("{H200X-2-35C: 3}");
  }
  GpuOutcome run() { return node.apply(on("[0]", "{H200X-3-71C: 1, H200X-1-18C: 1}")); }
  MigNode node;
};

class MigChanges {
 public:
  explicit MigChanges(bool from_boot) {
    MigTransition model(from_boot);
    before_ = model.node.state();
    EXPECT_EQ(model.run().kind, Kind::changed);
    after_ = model.node.state();
    changes_ = model.node.kernel.changes().size();
  }
  // GPU instances that a dead process would have taken away may stay where they are in nobody's way.
  void runs_again(MigTransition& transition) const {
    const auto vgpus = [](const std::string& state) { return state.substr(state.find(':')); };
    const GpuOutcome again = transition.run();
    EXPECT_FALSE(again.error) << message_of(again.error);
    EXPECT_EQ(vgpus(transition.node.state()), vgpus(after_));
  }
  std::string before_;
  std::string after_;
  std::size_t changes_ = 0;
};

class MigEveryChange : public testing::TestWithParam<bool>, protected MigChanges {
 protected:
  MigEveryChange() : MigChanges(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(From, MigEveryChange, testing::Values(false, true),
                         [](const auto& row) { return row.param ? "Boot" : "Instances"; });

TEST_P(MigEveryChange, ThatFailsLeavesTheGpuAsItWas) {
  for (std::size_t n = 1; n <= changes_; ++n) {
    SCOPED_TRACE(n);
    MigTransition transition(GetParam());
    transition.node.kernel.fail_change(n, EIO);
    const GpuOutcome failed = transition.run();
    if (failed.kind == Kind::changed) continue;  // the list of type names, which is kept for convenience
    EXPECT_EQ(failed.kind, Kind::failed);
    EXPECT_THAT(failed.undo_errors, IsEmpty()) << failed.undo_errors.front().message;
    EXPECT_EQ(transition.node.state(), before_);
    runs_again(transition);
  }
}

TEST_P(MigEveryChange, ThatHangsIsLeftAlone) {
  for (std::size_t n = 1; n <= changes_; ++n) {
    SCOPED_TRACE(n);
    MigTransition transition(GetParam());
    transition.node.kernel.hang_change(n);
    const GpuOutcome hung = transition.run();
    if (hung.kind == Kind::changed) continue;
    EXPECT_EQ(code_of(hung.error), Errc::stuck) << message_of(hung.error);
    const std::size_t then = transition.node.kernel.changes().size();
    EXPECT_EQ(transition.run().kind, Kind::refused);
    EXPECT_EQ(transition.node.kernel.changes().size(), then);
  }
}

// Not from a boot: the virtual functions would be a dead process's, which this one's books do not know.
class MigDeath : public testing::Test, protected MigChanges {
 protected:
  MigDeath() : MigChanges(false) {}
};

TEST_F(MigDeath, BehindAnyChangeIsRepairedByTheNextRun) {
  for (std::size_t n = 1; n <= changes_; ++n) {
    SCOPED_TRACE(n);
    MigTransition transition(false);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      transition.node.kernel.die_at_change(n);
      (void)transition.run();
      ::_exit(EXIT_FAILURE);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    runs_again(transition);
  }
}

}  // namespace
}  // namespace ferry
