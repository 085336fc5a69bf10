// SPDX-License-Identifier: Apache-2.0
// A whole file on a whole node: two boards that make vGPUs on virtual functions and two that make them on
// themselves, each told apart from the others by its filter and its place.
#include <array>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vgpu-dm/gpu_node.h"
#include "vgpu-dm/plan/comparison.h"

namespace ferry::vgpu {
namespace {

using test::must;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kProfiles = R"(version: v1
vgpu-configs:
  render-mix:
  - {device-filter: "0x26B910DE", devices: [0], vgpu-devices: {"L40S-12Q": 4}}
  - {device-filter: ["0x26B910DE"], devices: [1], vgpu-devices: {"L40S-48Q": 1}}
  - {device-filter: "0x1EB810DE:0x12A210DE", devices: all, vgpu-devices: {"T4-4Q": 4}}
  nothing:
  - {devices: all, vgpu-devices: {}}
)";

class RenderNode : public testing::Test {
 protected:
  static constexpr std::array<const char*, 4> kGpus = {"0000:17:00.0", "0000:65:00.0", "0000:b1:00.0",
                                                       "0000:ca:00.0"};
  RenderNode() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:26b9", "10de:1eb8"}, .sriov = true});
    for (const char* l40s : {kGpus[0], kGpus[1]}) {
      kernel_.add_function(
          {.address = l40s, .ids = "10de:26b9", .class_code = 0x030200, .driver = "nvidia", .totalvfs = 16});
      mdev_.add_vf_parents(l40s);
    }
    for (const char* t4 : {kGpus[2], kGpus[3]}) {
      kernel_.add_function({.address = t4,
                            .ids = "10de:1eb8",
                            .subsystem_ids = "10de:12a2",
                            .class_code = 0x030200,
                            .driver = "nvidia"});
      mdev_.add_parent(t4);
    }
  }
  static Profile named(const std::string& name) {
    const ProfileFile file =
        must(read_profiles({.file = "p.yaml", .text = kProfiles, .first_line = 1, .one_line = false}));
    return must(select_profile(file, name));
  }
  VgpuHost host() {
    return {.host = kernel_,
            .writer = kernel_,
            .uses = probe_,
            .rules = {.vendors = {0x10de}, .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d}},
            .node = "node-a",
            .pause = [](auto) {}};
  }
  /// What each GPU has become.
  std::vector<std::string> apply(const std::string& name) {
    std::vector<std::string> out;
    for (const GpuOutcome& gpu : must(apply_profile(host(), named(name))).gpus) {
      out.emplace_back(text(gpu.kind));
      EXPECT_EQ(test::message_of(gpu.error), "(no error)");
    }
    return out;
  }
  /// "4 x L40S-12Q" of each GPU.
  std::vector<std::string> vgpus_by_gpu() {
    std::vector<std::string> out;
    for (const GpuComparison& comparison : judge(named("nothing"), must(look(host())).inventory))
      out.push_back(text(comparison.found));
    return out;
  }
  /// Which GPUs agree with `render-mix`, by their indices.
  std::vector<unsigned> agreeing() {
    std::vector<unsigned> out;
    for (const GpuComparison& comparison : judge(named("render-mix"), must(look(host())).inventory)) {
      if (comparison.agrees) out.push_back(comparison.index);
    }
    return out;
  }

  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
  test::TableProbe probe_;
};

TEST_F(RenderNode, BecomesWhatTheFileSaysAndAgreesOnlyAsAWhole) {
  EXPECT_THAT(agreeing(), IsEmpty());
  EXPECT_THAT(apply("render-mix"), ElementsAre("changed", "changed", "changed", "changed"));
  EXPECT_THAT(vgpus_by_gpu(), ElementsAre("4 x L40S-12Q", "1 x L40S-48Q", "4 x T4-4Q", "4 x T4-4Q"));
  EXPECT_THAT(agreeing(), ElementsAre(0U, 1U, 2U, 3U));
  EXPECT_TRUE(assert_profile(named("render-mix"), must(look(host())).inventory));
  EXPECT_THAT(apply("render-mix"), ElementsAre("already so", "already so", "already so", "already so"));

  const std::string one = mdev_.devices_on(kGpus[3]).front();
  mdev_.remove_device(kGpus[3], one.substr(one.find(' ') + 1));
  EXPECT_THAT(agreeing(), ElementsAre(0U, 1U, 2U));
  EXPECT_EQ(assert_profile(named("render-mix"), must(look(host())).inventory).error().code, Errc::differs);
  EXPECT_THAT(apply("render-mix"), ElementsAre("already so", "already so", "already so", "changed"));
  EXPECT_EQ(mdev_.devices_on(kGpus[3]).front(), one) << "it has its UUID again";

  EXPECT_THAT(apply("nothing"), ElementsAre("changed", "changed", "changed", "changed"));
  EXPECT_THAT(vgpus_by_gpu(), ElementsAre("none", "none", "none", "none"));
}

}  // namespace
}  // namespace ferry::vgpu
