// SPDX-License-Identifier: Apache-2.0
// vGPUs on virtual functions, as mediated devices and without mdev.
#include <cerrno>
#include <utility>

#include <gmock/gmock.h>

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

constexpr const char* kFirst = "0000:05:00.4";
constexpr const char* kSecond = "0000:05:00.5";
constexpr const char* kThird = "0000:05:00.6";

class OnFunctions : public testing::TestWithParam<const mdev::Framework*> {
 protected:
  static bool vendor() { return GetParam() == &mdev::vendor_vfio(); }
  static std::string id(const std::string& function, const std::string& type) {
    return vendor() ? function : stable_uuid("node-a", test::at(function), type, 0).text;
  }
  static std::string device(const std::string& function, const std::string& type) {
    return type + " " + id(function, type);
  }
  static std::string create(const std::string& function, const std::string& number, const std::string& type) {
    return vendor()
               ? number + " > " + function + "/nvidia/current_vgpu_type"
               : id(function, type) + " > " + function + "/mdev_supported_types/nvidia-" + number + "/create";
  }
  static std::string remove(const std::string& function, const std::string& id) {
    return vendor() ? "0 > " + function + "/nvidia/current_vgpu_type"
                    : "1 > " + function + "/" + id + "/remove";
  }
  /// What stands behind the type in "remove T4-8Q UUID from ...".
  static std::string named(const std::string& id) { return vendor() ? "" : " " + id; }
  GpuPlan plan(const Profile& desired) { return plan_profile(desired, node.snapshot()).gpus.at(0); }
  GpuOutcome apply(const Profile& desired) { return node.apply(desired).gpus.at(0); }

  KindNode node{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Vfs, OnFunctions,
                         testing::Values(&mdev::mediated_on_functions(), &mdev::vendor_vfio()),
                         [](const auto& row) {
                           return row.param == &mdev::mediated_on_functions() ? "Mdev" : "VendorVfio";
                         });

TEST_P(OnFunctions, GoOneOnEachOfTheLowestFreeOnes) {
  const Profile desired = on("[0]", "{T4-4Q: 3}");
  EXPECT_EQ(apply(desired).kind, Kind::changed);
  EXPECT_THAT(node.writes(), ElementsAre(create(kFirst, "232", "T4-4Q"), create(kSecond, "232", "T4-4Q"),
                                         create(kThird, "232", "T4-4Q")));
  EXPECT_TRUE(assert_profile(desired, node.snapshot().inventory));
}

TEST_P(OnFunctions, AreNotMadeTwice) {
  for (const char* vgpus : {"{T4-4Q: 2}", "{T4-4Q: 3, T4-4C: 1}", "{T4-16Q: 1}", "{T4-1Q: 8}", "{}"}) {
    const Profile desired = on("[0]", vgpus);
    node.make(desired);
    EXPECT_EQ(apply(desired).kind, Kind::already_so) << vgpus;
    EXPECT_TRUE(assert_profile(desired, node.snapshot().inventory)) << vgpus;
    EXPECT_THAT(node.kernel.changes(), IsEmpty()) << vgpus;
  }
}

TEST_P(OnFunctions, StayWhereTheyFit) {
  node.add_vgpu(kSecond, "nvidia-232");
  node.add_vgpu(node.vf(6), "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11");
  const auto before = node.devices();
  EXPECT_EQ(apply(on("[0]", "{T4-4Q: 3}")).kind, Kind::changed);
  EXPECT_THAT(node.writes(), ElementsAre(create(kFirst, "232", "T4-4Q")));
  EXPECT_THAT(node.devices(), testing::IsSupersetOf(before));
}

TEST_P(OnFunctions, TakeThePlaceOfWhatGoes) {
  node.add_vgpu(kSecond, "nvidia-233");
  const std::string old = vendor() ? kSecond : KindNode::kUuid;
  const GpuOutcome outcome = apply(on("[0]", "{T4-4Q: 3}"));
  EXPECT_EQ(outcome.kind, Kind::changed) << test::message_of(outcome.error);
  EXPECT_THAT(node.writes(), ElementsAre(remove(kSecond, old), create(kFirst, "232", "T4-4Q"),
                                         create(kSecond, "232", "T4-4Q"), create(kThird, "232", "T4-4Q")));
}

TEST_P(OnFunctions, GoTheLastOnesWhenThereAreTooMany) {
  node.make(on("[0]", "{T4-4Q: 3}"));
  apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_THAT(node.devices(), ElementsAre(device(kFirst, "T4-4Q")));
  EXPECT_THAT(node.writes(), SizeIs(2));
}

TEST_P(OnFunctions, AreRefusedBeforeAnythingGoesWhereThereIsNoRoom) {
  node.add_vgpu(kFirst, "nvidia-232");
  const auto refusal = [&](const char* vgpus) {
    const GpuOutcome outcome = apply(on("[0]", vgpus));
    EXPECT_EQ(outcome.kind, Kind::refused);
    EXPECT_EQ(test::code_of(outcome.error), Errc::invalid_config);
    return test::message_of(outcome.error);
  };
  const std::string gpu = "p.yaml:5: GPU 0 (0000:05:00.0): ";
  EXPECT_EQ(refusal("{T4-8Q: 3}"), gpu + "no room for 3 x T4-8Q: 2 fit");
  EXPECT_EQ(refusal("{T4-4Q: 5}"), gpu + "no room for 5 x T4-4Q: 4 fit");
  EXPECT_EQ(refusal("{T4-4Q: 3, T4-4C: 2}"),
            gpu + "no room for 2 x T4-4C: 4 fit, and 3 others are asked for");
  EXPECT_EQ(refusal("{T4-1Q: 9}"), gpu + "no room for 9 x T4-1Q: 8 fit") << "it has eight functions";
  EXPECT_EQ(refusal("{T4-8Q: 1, T4-4Q: 1}"),
            gpu + "T4-8Q (8192 MiB) and T4-4Q (4096 MiB) are of two sizes, and mixed-sizes is not set");
  EXPECT_THAT(refusal("{T4-3Q: 1}"), testing::StartsWith(gpu + "offers no type T4-3Q; did you mean "));
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(OnFunctions, AreAskedAboutByTheirNodes) {
  node.add_vgpu(kSecond, "nvidia-233");
  const std::string held = vendor() ? kSecond : KindNode::kUuid;
  node.probe.hold(held);
  const GpuOutcome outcome = apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::message_of(outcome.error),
            "GPU 0 (0000:05:00.0): vGPU " + held +
                " (T4-8Q) would have to be removed: VM render (pid 412) holds /dev/vfio/100");
  EXPECT_THAT(node.writes(), IsEmpty());
  const vfio::UseQuestion question = mdev::use_question(node.snapshot().inventory.gpus.at(0).devices.at(0));
  EXPECT_EQ(question.device, held);
  EXPECT_THAT(question.nodes, SizeIs(2));
}

TEST_P(OnFunctions, ComeBackWhenTheDriverHasLessRoomThanItSaid) {
  node.add_vgpu(kSecond, "nvidia-233");
  const auto before = node.devices();
  node.mdev.hidden_vgpus = vendor() ? 1 : 0;
  node.vendor.hidden_vgpus = 1;
  if (!vendor()) node.kernel.fail_change(4, EINVAL);
  const GpuOutcome outcome = apply(on("[0]", "{T4-4Q: 4}"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(test::message_of(outcome.error), testing::StartsWith("create T4-4Q "));
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_EQ(node.devices(), before);
}

TEST_P(OnFunctions, AreNotBelievedWhenTheyDoNotCome) {
  node.mdev.swallow_creates = true;
  node.vendor.swallow_creates = true;
  const GpuOutcome outcome = apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(test::message_of(outcome.error),
            "create T4-4Q" + named(id(kFirst, "T4-4Q")) +
                " on 0000:05:00.4: the kernel took the write, but there is no such vGPU");
  EXPECT_GT(node.pauses, 0) << "it was waited for";
}

TEST_P(OnFunctions, AreNotBelievedWhenTheyDoNotGo) {
  node.add_vgpu(kSecond, "nvidia-233");
  node.mdev.swallow_removes = true;
  node.vendor.swallow_removes = true;
  const GpuOutcome outcome = apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(test::message_of(outcome.error),
              testing::EndsWith("the kernel took the write, but the vGPU is still there"));
  EXPECT_THAT(node.writes(), SizeIs(1)) << "nothing else is written over it";
}

TEST_P(OnFunctions, AreSeenToGoOnlyAfterAWhile) {
  node.add_vgpu(kFirst, "nvidia-233");
  node.mdev.swallow_removes = true;
  node.vendor.swallow_removes = true;
  VgpuHost host = node.host();
  bool gone = false;
  host.pause = [&](auto) {
    if (std::exchange(gone, true)) return;
    node.mdev.swallow_removes = false;
    node.vendor.swallow_removes = false;
    if (vendor()) {
      node.vendor.set(kFirst, "0");
    } else {
      node.mdev.remove_device(kFirst, KindNode::kUuid);
    }
  };
  const auto outcome = apply_profile(host, on("[0]", "{T4-4Q: 1}"));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->gpus[0].kind, Kind::changed) << test::message_of(outcome->gpus[0].error);
  EXPECT_THAT(node.devices(), ElementsAre(device(kFirst, "T4-4Q")));
}

TEST_P(OnFunctions, AreTakenBackWhereSomebodyElseHasTakenTheRoom) {
  std::size_t writes = 0;
  const auto outcome = apply_profile(node.host(), on("[0]", "{T4-8Q: 2}"), [&](const auto&, const auto&) {
    if (++writes == 1) node.add_vgpu(node.vf(7), "nvidia-233");
  });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->gpus[0].kind, Kind::failed);
  EXPECT_THAT(test::message_of(outcome->gpus[0].error),
              testing::StartsWith("create T4-8Q" + named(id(kSecond, "T4-8Q")) +
                                  " on 0000:05:00.5: 0000:05:00.5 no longer offers T4-8Q: write /"));
  EXPECT_THAT(node.devices(), ElementsAre("T4-8Q " + (vendor() ? node.vf(7) : KindNode::kUuid)))
      << "theirs, and not ours";
  EXPECT_THAT(outcome->gpus[0].undo_errors, IsEmpty());
}

TEST_P(OnFunctions, AreMissedWhereSomebodyElseHasTakenTheirPlace) {
  node.make(on("[0]", "{T4-8Q: 1}"));
  const auto outcome =
      apply_profile(node.host(), on("[0]", "{T4-4Q: 2}"), [&](const VgpuStep& step, const auto&) {
        if (step.kind == VgpuStep::Kind::remove) node.add_vgpu(kFirst, "nvidia-234");
      });
  ASSERT_TRUE(outcome);
  const GpuOutcome& gpu = outcome->gpus[0];
  EXPECT_EQ(gpu.kind, Kind::failed);
  EXPECT_THAT(node.devices(), ElementsAre("T4-16Q " + (vendor() ? kFirst : std::string(KindNode::kUuid))));
  ASSERT_THAT(gpu.undo_errors, SizeIs(1));
  EXPECT_THAT(gpu.undo_errors[0].message,
              testing::AllOf(testing::HasSubstr("(T4-8Q) is gone"),
                             testing::HasSubstr("another one is on 0000:05:00.4")));
}

TEST_P(OnFunctions, AreNotTakenBackWhereSomebodyElseHasMadeThemAgain) {
  const std::string uuid = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11";
  node.add_vgpu(node.vf(7), "nvidia-233");
  int removals = 0;
  // It comes behind the first look, goes in the second stage, and comes again.
  const auto outcome =
      apply_profile(node.host(), on("[0]", "{T4-4Q: 2}"), [&](const VgpuStep& step, const auto&) {
        if (step.kind == VgpuStep::Kind::remove && ++removals <= 2)
          node.add_vgpu(node.vf(6), "nvidia-233", uuid);
      });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->gpus[0].kind, Kind::failed);
  EXPECT_THAT(node.devices(), testing::Contains("T4-8Q " + (vendor() ? node.vf(6) : uuid)));
}

TEST_P(OnFunctions, AreNotMadeOverSomebodyElses) {
  std::size_t writes = 0;
  const auto outcome = apply_profile(node.host(), on("[0]", "{T4-4Q: 2}"), [&](const auto&, const auto&) {
    if (++writes == 1) node.add_vgpu(kSecond, "nvidia-232");
  });
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->gpus[0].kind, Kind::failed);
  EXPECT_THAT(node.devices(), ElementsAre(std::string("T4-4Q ") + (vendor() ? kSecond : KindNode::kUuid)));
  EXPECT_THAT(outcome->gpus[0].undo_errors, IsEmpty());
}

TEST_P(OnFunctions, AreNotMadeOnAFunctionThatAnotherDriverHas) {
  node.kernel.remove("sys/devices/pci0000:00/0000:05:00.4/nvidia");
  node.kernel.remove("sys/class/mdev_bus/0000:05:00.4");
  node.make(on("[0]", "{T4-4Q: 1}"));
  EXPECT_THAT(node.devices(), ElementsAre(device(kSecond, "T4-4Q")));
}

TEST_P(OnFunctions, AreRemovedWhereTheyAreOurs) {
  node.make(on("[0]", "{T4-4Q: 2}"));
  const auto outcome = remove_vgpus(node.host(), {});
  ASSERT_TRUE(outcome);
  if (vendor()) {
    EXPECT_EQ(outcome->gpus[0].kind, Kind::already_so);
    EXPECT_THAT(outcome->gpus[0].notes,
                testing::Contains("GPU 0 (0000:05:00.0): vGPU 0000:05:00.4 (T4-4Q) has no UUID that would "
                                  "tell whether Ferry made it: left; --foreign takes it too"));
    ASSERT_TRUE(remove_vgpus(node.host(), {.gpus = {}, .foreign = true}));
  }
  EXPECT_THAT(node.devices(), IsEmpty());
  EXPECT_THAT(node.writes(), SizeIs(2));
}

TEST_P(OnFunctions, AreLeftOnAFunctionThatAVmHasTakenDuringTheUndo) {
  node.add_vgpu(kFirst, "nvidia-233");
  const mdev::VgpuGpu before = node.snapshot().inventory.gpus[0];
  node.kernel.forget_changes();
  if (vendor()) {
    node.vendor.set(kFirst, "0");
  } else {
    node.mdev.remove_device(kFirst, KindNode::kUuid);
  }
  node.add_vgpu(kFirst, "nvidia-232", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11");
  node.probe.hold(vendor() ? kFirst : "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a11");
  const VgpuSnapshot snapshot = node.snapshot();
  EXPECT_THAT(plan_undo(before, snapshot.inventory.gpus[0], snapshot.use), IsEmpty());
  EXPECT_THAT(plan_undo(before, snapshot.inventory.gpus[0], {}), SizeIs(2));
}

class VendorVfio : public testing::Test {
 protected:
  GpuOutcome apply(const Profile& desired) { return node.apply(desired).gpus.at(0); }
  void make_unknown() { node.kernel.overwrite_id("0000:05:00.0", "device", "0x1eb9\n"); }

  KindNode node{&mdev::vendor_vfio()};
};

TEST_F(VendorVfio, RefusesWhatTheDriverSaysAVmHolds) {
  node.add_vgpu(kFirst, "nvidia-233");
  node.vendor.hold(kFirst);
  const GpuOutcome outcome = apply(on("[0]", "{T4-4Q: 1}"));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::refused);
  EXPECT_EQ(test::message_of(outcome.error),
            "remove T4-8Q from 0000:05:00.4: a VM holds it: write "
            "/sys/bus/pci/devices/0000:05:00.4/nvidia/current_vgpu_type: Operation not permitted");
  EXPECT_EQ(test::hint_of(outcome.error), "stop the VM first");
  EXPECT_THAT(node.devices(), ElementsAre("T4-8Q 0000:05:00.4"));
}

TEST_F(VendorVfio, PutsBackWhatWentBeforeTheOneThatAVmHolds) {
  node.add_vgpu(kFirst, "nvidia-232");
  node.add_vgpu(kSecond, "nvidia-232");
  node.vendor.hold(kSecond);
  const auto before = node.devices();
  const GpuOutcome outcome = apply(on("[0]", "{T4-8Q: 1}"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(test::code_of(outcome.error), Errc::refused);
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_EQ(node.devices(), before);
}

TEST_F(VendorVfio, SaysWhatComesOnceTheDriverListsIt) {
  node.add_vgpu(kFirst, "nvidia-233");
  const GpuPlan plan = plan_profile(on("[0]", "{T4-4Q: 2, T4-4C: 1}"), node.snapshot()).gpus.at(0);
  EXPECT_FALSE(plan.refusal) << test::message_of(plan.refusal);
  ASSERT_THAT(plan.steps, SizeIs(1));
  EXPECT_EQ(plan.steps[0].text(), "remove T4-8Q from 0000:05:00.4");
  EXPECT_EQ(text(plan.then), "2 x T4-4Q, 1 x T4-4C");
}

TEST_F(VendorVfio, RemembersNamesThatTheDriverNoLongerLists) {
  node.make(on("[0]", "{T4-16Q: 1}"));  // full, and the table has no numbers of this board
  EXPECT_EQ(text(plan_profile(on("[0]", "{}"), node.snapshot()).gpus.at(0).found), "1 x T4-16Q");
  node.kernel.new_boot();
  EXPECT_EQ(text(plan_profile(on("[0]", "{}"), node.snapshot()).gpus.at(0).found), "1 x 234");
}

TEST_F(VendorVfio, TakesNothingAwayThatMayBeWhatIsAsked) {
  node.add_vgpu(kFirst, "nvidia-234");
  const GpuOutcome outcome = apply(on("[0]", "{T4-16Q: 1}"));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::message_of(outcome.error),
            "p.yaml:5: GPU 0 (0000:05:00.0): cannot tell whether vGPU 0000:05:00.4 of type 234 is a T4-16Q: "
            "its driver lists neither now");
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
  EXPECT_EQ(apply(on("[0]", "{}")).kind, Kind::changed) << "nothing is asked that it could be";
}

TEST_F(VendorVfio, DoesNotTakeAFullGpuForAnother) {
  node.make(on("[0]", "{T4-8Q: 2}"));
  EXPECT_FALSE(assert_profile(on("[0]", "{T4-8C: 2}"), node.snapshot().inventory));
  EXPECT_EQ(apply(on("[0]", "{T4-8C: 2}")).kind, Kind::changed);
  EXPECT_THAT(node.devices(), ElementsAre("T4-8C 0000:05:00.4", "T4-8C 0000:05:00.5"));
}

TEST_F(VendorVfio, TriesWhatNoTableKnowsOnceTheOthersAreGone) {
  make_unknown();
  node.add_vgpu(kFirst, "nvidia-233");
  const auto before = node.devices();
  EXPECT_EQ(apply(on("[0]", "{T4-4Q: 2}")).kind, Kind::changed);
  EXPECT_THAT(node.devices(), ElementsAre("T4-4Q 0000:05:00.4", "T4-4Q 0000:05:00.5"));
  const GpuOutcome outcome = apply(on("[0]", "{T4-3Q: 2}"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(test::message_of(outcome.error), testing::HasSubstr("offers no type T4-3Q"));
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_THAT(node.devices(), ElementsAre("T4-4Q 0000:05:00.4", "T4-4Q 0000:05:00.5"));
}

TEST_F(VendorVfio, SaysThatATypeOfTheBoardIsNotAvailable) {
  // A GPU whose driver lists less than the table has.
  KindNode other(&mdev::vendor_vfio());
  other.vendor.add_gpu(KindNode::kGpu, {{"nvidia-230", "GRID T4-1Q", 1024, 16}});
  const GpuOutcome outcome = other.apply(on("[0]", "{T4-4Q: 1}")).gpus.at(0);
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::message_of(outcome.error),
            "p.yaml:5: GPU 0 (0000:05:00.0): its driver offers no T4-4Q now, though it carries nothing");
}

}  // namespace
}  // namespace ferry::vgpu
