// SPDX-License-Identifier: Apache-2.0
// vGPUs at places in the GPU's memory that a policy chooses: made there, moved there, put back by an undo.
#include <cerrno>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/kind_node.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using test::KindNode;
using test::message_of;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = GpuOutcome::Kind;
using Places = std::vector<std::uint32_t>;

/// `vgpus` on GPU 0, its types at these places, in order of the names.
Profile placed(const std::string& vgpus, const std::vector<Places>& places) {
  Profile profile = test::on("[0]", vgpus);
  for (std::size_t i = 0; i < places.size(); ++i) profile.items.front().vgpus.at(i).placement = places[i];
  return profile;
}

class PlacementApply : public testing::TestWithParam<const mdev::Framework*> {
 protected:
  /// "T4-4Q 3" of each vGPU, in order of its virtual function.
  std::vector<std::string> places() {
    std::vector<std::string> out;
    const VgpuSnapshot snapshot = node.snapshot();
    for (const mdev::VgpuDevice& device : snapshot.inventory.gpus.front().devices) {
      out.push_back(device.short_name + " " +
                    (device.placement ? std::to_string(*device.placement) : std::string("none")));
    }
    return out;
  }
  GpuOutcome apply(const Profile& profile) { return node.apply(profile).gpus.front(); }
  mdev::VgpuDevice vgpu(std::size_t number) {
    return node.snapshot().inventory.gpus.front().devices.at(number);
  }
  KindNode node{GetParam()};
};

TEST_P(PlacementApply, MakesEachAtItsPlace) {
  const Profile profile = placed("{T4-4Q: 2, T4-4C: 1}", {{3, 1}, {0}});
  const GpuOutcome made = apply(profile);
  EXPECT_EQ(made.kind, Kind::changed) << message_of(made.error);
  EXPECT_THAT(made.done, SizeIs(3));
  EXPECT_THAT(places(), ElementsAre("T4-4C 0", "T4-4Q 3", "T4-4Q 1"));
  // The last one is where it shall be as soon as it is made.
  EXPECT_THAT(node.writes(), SizeIs(5));
  EXPECT_EQ(judge(profile, node.snapshot().inventory).front().difference, "");
  node.kernel.forget_changes();
  EXPECT_EQ(apply(profile).kind, Kind::already_so);
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(PlacementApply, SaysThePlacesInADryRun) {
  const VgpuPlan plan = plan_profile(placed("{T4-4Q: 1}", {{2}}), node.snapshot());
  ASSERT_THAT(plan.gpus.front().steps, SizeIs(1));
  EXPECT_THAT(plan.gpus.front().steps.front().text(), EndsWith(" at placement 2"));
}

TEST_P(PlacementApply, MakesThoseWithoutAPlaceLast) {
  EXPECT_EQ(apply(placed("{T4-4Q: 2, T4-4C: 2}", {{}, {0, 1}})).kind, Kind::changed);
  EXPECT_THAT(places(), ElementsAre("T4-4C 0", "T4-4C 1", "T4-4Q 2", "T4-4Q 3"));
}

TEST_P(PlacementApply, MovesWhatIsElsewhereAndLeavesTheRest) {
  node.make(placed("{T4-4Q: 3}", {{0, 1, 2}}));
  const mdev::VgpuId first = vgpu(0).id;
  const Profile other = placed("{T4-4Q: 3}", {{3, 2, 1}});
  EXPECT_EQ(judge(other, node.snapshot().inventory).front().difference,
            "GPU 0 (0000:05:00.0): vGPU " + first.text + " (T4-4Q): expected placement 3, found 0");
  const GpuOutcome moved = apply(other);
  EXPECT_EQ(moved.kind, Kind::changed) << message_of(moved.error);
  ASSERT_THAT(moved.done, SizeIs(1));
  EXPECT_THAT(moved.done.front().text(), HasSubstr("move T4-4Q"));
  EXPECT_EQ(vgpu(0).id, first);
  EXPECT_THAT(places(), ElementsAre("T4-4Q 3", "T4-4Q 1", "T4-4Q 2"));
}

TEST_P(PlacementApply, MovesOneOutOfTheWayOfAnotherFirst) {
  node.make(placed("{T4-4Q: 1, T4-4C: 1}", {{0}, {1}}));
  // The Q shall be where the C is now.
  EXPECT_EQ(apply(placed("{T4-4Q: 1, T4-4C: 1}", {{1}, {2}})).kind, Kind::changed);
  EXPECT_THAT(places(), ElementsAre("T4-4C 2", "T4-4Q 1"));
}

TEST_P(PlacementApply, RefusesThatTwoChangePlaces) {
  node.make(placed("{T4-4Q: 1, T4-4C: 1}", {{0}, {1}}));
  const GpuOutcome outcome = apply(placed("{T4-4Q: 1, T4-4C: 1}", {{1}, {0}}));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("would have to change places with another one"));
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(PlacementApply, RefusesAPlaceThatOneWhichStaysHas) {
  node.make(test::on("[0]", "{T4-4C: 1}"));
  const GpuOutcome outcome = apply(placed("{T4-4Q: 1, T4-4C: 1}", {{0}, {}}));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::invalid_config);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("placement 0 is taken by vGPU "));
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(PlacementApply, KeepsOfTooManyThoseAtTheRightPlaces) {
  node.make(placed("{T4-4Q: 3}", {{0, 1, 2}}));
  const mdev::VgpuId last = vgpu(2).id;
  EXPECT_EQ(apply(placed("{T4-4Q: 1}", {{2}})).kind, Kind::changed);
  EXPECT_EQ(vgpu(0).id, last);
  EXPECT_THAT(node.writes(), SizeIs(2));
}

TEST_P(PlacementApply, RefusesWhileAVmHasWhatWouldMove) {
  node.make(placed("{T4-4Q: 1}", {{0}}));
  node.probe.hold(vgpu(0).id.text);
  const GpuOutcome outcome = apply(placed("{T4-4Q: 1}", {{1}}));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::refused);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("cannot be moved to placement 1: VM render"));
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(PlacementApply, SaysWhatLastsAndNotWhoUsesIt) {
  node.make(placed("{T4-4Q: 1, T4-4C: 1}", {{0}, {1}}));
  node.probe.hold(vgpu(0).id.text);
  const GpuOutcome outcome = apply(placed("{T4-4Q: 1, T4-4C: 1}", {{1}, {0}}));
  EXPECT_THAT(message_of(outcome.error), HasSubstr("would have to change places with another one"));
  EXPECT_THAT(node.writes(), IsEmpty());
}

TEST_P(PlacementApply, IsUndoneWhereTheDriverHasNoSuchPlace) {
  node.make(placed("{T4-4Q: 2}", {{1, 0}}));
  const GpuOutcome outcome = apply(placed("{T4-4Q: 2}", {{2, 4}}));  // a T4 has room for four
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_EQ(test::code_of(outcome.error), std::error_code(EINVAL, std::generic_category()));
  EXPECT_THAT(test::hint_of(outcome.error), HasSubstr("without placement the driver chooses"));
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_THAT(places(), ElementsAre("T4-4Q 1", "T4-4Q 0"));
}

// EPERM is a VM's: whoever fills new vGPUs at once may have started one.
TEST_P(PlacementApply, IsUndoneWhereTheNewOneCannotBePutInItsPlace) {
  node.kernel.fail_change(GetParam() == &mdev::vendor_vfio() ? 3 : 2, EPERM);
  const GpuOutcome outcome = apply(placed("{T4-4Q: 1}", {{2}}));
  EXPECT_EQ(outcome.kind, Kind::failed) << "something was written";
  EXPECT_EQ(test::code_of(outcome.error), Errc::refused);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("a VM holds it"));
  EXPECT_THAT(outcome.done, SizeIs(1));
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_THAT(node.devices(), IsEmpty());
}

TEST_P(PlacementApply, PutsWhatHasGoneBackAtItsPlace) {
  node.make(placed("{T4-4Q: 2}", {{3, 1}}));
  node.kernel.fail_change(3, EIO);  // after both have gone
  const GpuOutcome outcome = apply(test::on("[0]", "{T4-8Q: 1}"));
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(outcome.undo_errors, IsEmpty());
  EXPECT_THAT(places(), ElementsAre("T4-4Q 3", "T4-4Q 1"));
}

TEST_P(PlacementApply, RefusesAGpuThatReportsNoPlaces) {
  node.mdev.has_placements = false;
  node.vendor.has_placements = false;
  node.make(test::on("[0]", "{T4-4Q: 1}"));
  const GpuOutcome outcome = apply(placed("{T4-4Q: 2}", {{0, 1}}));
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::unsupported);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("its driver tells no places of vGPUs"));
  EXPECT_THAT(node.writes(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Frameworks, PlacementApply,
                         testing::Values(&mdev::mediated_on_functions(), &mdev::vendor_vfio()),
                         [](const auto& row) { return test::name_of(row.param); });

TEST(PlacementApplyOnVendorVfio, ReadsItBack) {
  KindNode node(&mdev::vendor_vfio());
  node.vendor.swallow_moves = true;
  const GpuOutcome outcome = node.apply(placed("{T4-4Q: 1}", {{1}})).gpus.front();
  EXPECT_EQ(outcome.kind, Kind::failed);
  EXPECT_THAT(message_of(outcome.error),
              HasSubstr("the kernel took the write, but it is at another placement"));
  EXPECT_THAT(node.devices(), IsEmpty());
}

TEST(PlacementApplyOnMdev, RefusesAGpuThatMakesVgpusOnItself) {
  KindNode node(&mdev::mediated_on_gpu());
  const GpuOutcome outcome = node.apply(placed("{T4-4Q: 1}", {{0}})).gpus.front();
  EXPECT_EQ(outcome.kind, Kind::refused);
  EXPECT_EQ(test::code_of(outcome.error), Errc::unsupported);
  EXPECT_THAT(message_of(outcome.error), HasSubstr("makes vGPUs on itself, and no places"));
  EXPECT_THAT(node.writes(), IsEmpty());
}

}  // namespace
}  // namespace ferry::vgpu
