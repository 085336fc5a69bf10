// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <gmock/gmock.h>

#include "tests/vgpu-dm/gpu_node.h"
#include "tests/vgpu-dm/mig_node.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using test::code_of;
using test::GpuNode;
using test::message_of;
using test::on;
using test::profile;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kA = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

class HostCheckTest : public testing::Test {
 protected:
  HostCheck check(const Profile& desired) { return check_on_host(desired, node.snapshot()); }
  /// A GPU on vfio-pci, at a higher address than the others.
  void add_bare(const char* ids, const char* subsystem = "10de:0001") {
    node.kernel.add_driver({.name = "vfio-pci", .ids = {ids}});
    node.kernel.add_function({.address = kBare,
                              .ids = ids,
                              .subsystem_ids = subsystem,
                              .class_code = 0x030200,
                              .driver = "vfio-pci"});
  }
  static constexpr const char* kBare = "0000:08:00.0";
  GpuNode node;
};

TEST_F(HostCheckTest, SaysWhatWorks) {
  const HostCheck result = check(on("[0, 1]", "{T4-4Q: 4}"));
  EXPECT_TRUE(result.works());
  EXPECT_EQ(result.status(), ExitStatus::done);
  ASSERT_EQ(result.gpus.size(), 3U);
  EXPECT_TRUE(result.gpus[0].matched);
  EXPECT_EQ(result.gpus[0].place, "p.yaml:4");
  EXPECT_EQ(text(result.gpus[0].desired), "4 x T4-4Q");
  EXPECT_FALSE(result.gpus[2].matched);
  EXPECT_THAT(node.kernel.writes(), IsEmpty());
}

TEST_F(HostCheckTest, NamesWhatCannotFit) {
  const HostCheck result = check(on("[0, 1]", "{T4-4Q: 5}"));
  EXPECT_FALSE(result.works());
  EXPECT_EQ(result.status(), ExitStatus::refused);
  EXPECT_EQ(message_of(result.gpus[0].refusal),
            "p.yaml:5: GPU 0 (0000:05:00.0): no room for 5 x T4-4Q: 4 fit");
}

TEST_F(HostCheckTest, IsRefusedWhateverIsInTheWay) {
  node.mdev.add_device(GpuNode::kFirst, "nvidia-233", kA);
  node.probe.hold(kA);
  EXPECT_EQ(check(on("[0]", "{T4-4Q: 4}")).status(), ExitStatus::refused);
  // No driver of its own now: that is the host's state too.
  const HostCheck bare = check(on("[2]", "{T4-4Q: 4}"));
  EXPECT_EQ(code_of(bare.gpus[2].refusal), Errc::unsupported);
  EXPECT_EQ(bare.status(), ExitStatus::refused);
}

TEST_F(HostCheckTest, KnowsByTheTableWhatNeverFitsOnAGpuThatHasNoTypesNow) {
  add_bare("10de:26b9");
  const HostCheck fits = check(on("[3]", "{L40S-12Q: 4}"));
  EXPECT_EQ(code_of(fits.gpus[3].refusal), Errc::unsupported);
  EXPECT_EQ(fits.status(), ExitStatus::refused);
  const HostCheck never = check(on("[3]", "{L40S-12Q: 5}"));
  EXPECT_EQ(message_of(never.gpus[3].refusal),
            "p.yaml:5: GPU 3 (0000:08:00.0): no room for 5 x L40S-12Q: 4 fit");
  EXPECT_EQ(never.status(), ExitStatus::refused);
}

TEST_F(HostCheckTest, DoesNotTakeAHoleInTheTableForAFault) {
  add_bare("10de:26b9");
  const HostCheck result = check(on("[3]", "{T4-4Q: 4}"));
  EXPECT_EQ(code_of(result.gpus[3].refusal), Errc::unsupported);
  EXPECT_THAT(result.gpus[3].notes,
              ElementsAre("p.yaml:5: no table lists T4-4Q for 10de:26b9: whether it has the type shows once "
                          "its driver offers types"));
}

TEST_F(HostCheckTest, NamesWhatNeverWorksAsNvidiasProgramTakesIt) {
  add_bare("10de:2bb5");
  const auto notes = [&](const char* type) { return check(on("[3]", type)).gpus[3].notes; };
  EXPECT_THAT(notes("{DC-2-48Q: 2}"),
              ElementsAre("p.yaml:5: DC-2-48Q never works under NVIDIA's program, which makes a GPU instance "
                          "2g.48gb for it; the type needs 2g.48gb+gfx"));
  EXPECT_THAT(notes("{DC-2-12QGFX: 8}"),
              ElementsAre("p.yaml:5: DC-2-12QGFX never works under NVIDIA's program, which makes a GPU "
                          "instance 2g.12gb+gfx for it; the type needs 2g.48gb+gfx"));
  // Only names whose size is the whole instance's.
  for (const char* works : {"{DC-1-24QGFX: 4}", "{DC-2-48CGFX: 2}", "{DC-4-96QGFX: 1}", "{DC-48Q: 2}"}) {
    EXPECT_THAT(notes(works), IsEmpty()) << works;
  }
}

TEST_F(HostCheckTest, HasNothingAgainstNamesThatMeanTheirInstance) {
  add_bare("10de:233b");
  EXPECT_THAT(check(on("[3]", "{H200-1-18C: 5, H200-2-35C: 1}")).gpus[3].notes, IsEmpty());
  EXPECT_THAT(check(on("[3]", "{H200-1-18CME: 1}")).gpus[3].notes, IsEmpty());
}

TEST_F(HostCheckTest, AsksOfNoProfileWhatAnotherNeeds) {
  test::MigNode mig;
  mig.make("{H200X-1-18C: 1}");
  mig.probe.users[test::MigNode::kGpu] = {{.kind = vfio::DeviceUser::Kind::process,
                                           .name = "trainer",
                                           .pid = 77,
                                           .what = "/dev/nvidia0",
                                           .pod_uid = {}}};
  const std::array profiles = {on("[0]", "{}"), on("[0]", "{H200X-35C: 1}")};
  const VgpuSnapshot snapshot = test::must(look(mig.host(), profiles));
  EXPECT_TRUE(check_on_host(profiles[0], snapshot).works()) << "no mode is switched for it";
  EXPECT_FALSE(check_on_host(profiles[1], snapshot).works());
}

TEST_F(HostCheckTest, SaysWhichItemsAreForNothing) {
  const HostCheck few =
      check(profile("  - {devices: [7], vgpu-devices: {}}\n"
                    "  - {devices: [0], vgpu-devices: {T4-4Q: 1}}\n"
                    "  - {devices: all, vgpu-devices: {}}\n"));
  EXPECT_THAT(few.notes, ElementsAre("p.yaml:5: a later item holds for every GPU that it matches",
                                     "p.yaml:4: matches no GPU of this node"));
  std::string many;
  for (int i = 0; i < 4; ++i) many += "  - {devices: [7], vgpu-devices: {}}\n";
  EXPECT_THAT(check(profile(many)).notes,
              ElementsAre("4 items match no GPU of this node, the first at p.yaml:4"));
}

}  // namespace
}  // namespace ferry::vgpu
