// SPDX-License-Identifier: Apache-2.0
// Claims for vGPUs of different sizes on one GPU: each gets the placement that the scheduler has chosen, or a
// GPU instance (MIG) that exists.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/claim_request.h"
#include "api/claimable_gpus.h"
#include "mdev/gpu_management.h"
#include "tests/host/claim_node.h"
#include "tests/support/fake_mig.h"
#include "tests/support/must.h"
#include "tests/vfio/rebinds.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kSmall = "1500";  // H200X-35C: one unit at 0 or 3
constexpr const char* kLarge = "1501";  // H200X-70C: two units from 1 or 2 on

/// An H200 with its virtual functions, whose policy is `{allocation: dra, mixed-sizes: true}`.
class SizesNode : public OneGpuNode {
 public:
  SizesNode() : OneGpuNode("GH100 [H200 SXM]") {
    management = &library;
    ask_library = [this](const vfio::PciAddress& one) {
      return has_library ? mig.read(one) : fail(Errc::unsupported, "no libnvidia-ml.so.1");
    };
    for_dra[gpu()].mixed_sizes = true;
    kernel.add_driver({.name = "nvidia", .ids = {"10de:2335"}, .sriov = true});
    kernel.add_function({.address = kGpu,
                         .ids = "10de:2335",
                         .subsystem_ids = "10de:18be",
                         .class_code = 0x030200,
                         .group = 17,
                         .driver = "nvidia",
                         .totalvfs = 8});
    vendor.add_gpu(kGpu, test::h200_types());
    kernel.enable_vfs(kGpu, 8);
    publish();
  }

  const api::VgpuType& type(const std::string& id) const {
    return *std::ranges::find(claimable.at(0).types, id, &api::VgpuType::id);
  }
  ClaimKeeper::Answer prepare(const std::string& uid, const char* id,
                              std::optional<std::uint32_t> placement) {
    return ClaimHost::prepare(uid, {{.gpu = gpu(), .type = id, .placement = placement}});
  }
  mdev::GpuSwitch mixed_sizes() { return must(mig.read(gpu())).mixed_sizes; }
  std::vector<std::string> vgpus() const { return vendor.places_of_devices(kGpu); }

  test::FakeVendorVfio vendor{kernel};
  test::FakeMig mig{kernel, vendor};
  mdev::CalledGpuManagement library{kernel};
  bool has_library = true;  // the host has it
};

class ClaimSizesTest : public testing::Test, protected SizesNode {};

TEST_F(ClaimSizesTest, ArePublishedWithTheirPlacements) {
  ASSERT_EQ(claimable.size(), 1U);
  EXPECT_TRUE(claimable[0].mixed_sizes);
  EXPECT_EQ(claimable[0].health, api::GpuHealth::ready) << claimable[0].reason;
  EXPECT_EQ(claimable[0].types.size(), 2U) << "MIG-backed types are not for claims";
  EXPECT_EQ(type(kSmall).size, 1U);
  EXPECT_THAT(type(kSmall).placements, ElementsAre(0U, 3U));
  EXPECT_EQ(type(kLarge).size, 2U);
  EXPECT_THAT(type(kLarge).placements, ElementsAre(1U, 2U));
  EXPECT_THAT(asked, ElementsAre(gpu()));
  publish();
  EXPECT_THAT(asked, IsEmpty()) << "the last round has them";
  EXPECT_THAT(type(kSmall).placements, ElementsAre(0U, 3U));
}

TEST_F(ClaimSizesTest, GetTheirPlacementsInAnyOrder) {
  EXPECT_EQ(mixed_sizes(), mdev::GpuSwitch::off);
  must(prepare("a", kSmall, 3));
  EXPECT_EQ(mixed_sizes(), mdev::GpuSwitch::on);
  EXPECT_THAT(vgpus(), ElementsAre("35C at 3"));
  must(prepare("b", kLarge, 1));
  must(prepare("c", kSmall, 0));
  EXPECT_THAT(vgpus(), ElementsAre("35C at 0", "35C at 3", "70C at 1"));
  publish();
  EXPECT_THAT(type(kLarge).placements, ElementsAre(1U, 2U)) << "a full GPU lists no type";
  must(unprepare("a"));
  must(unprepare("c"));
  must(prepare("d", kSmall, 3));
  EXPECT_THAT(vgpus(), ElementsAre("35C at 3", "70C at 1"));
  for (const char* uid : {"b", "d"}) must(unprepare(uid));
  EXPECT_THAT(vgpus(), IsEmpty());
  EXPECT_THAT(record().claims, IsEmpty());
}

TEST_F(ClaimSizesTest, FailWhereAnotherProgramHasThePlacement) {
  must(mig.set_mixed_sizes(gpu(), true));
  vendor.set("0000:17:00.5", kSmall);  // at 0
  const auto refused = prepare("a", kSmall, 0);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("placement 0 is taken by vGPU 0000:17:00.5"));
  EXPECT_THAT(record().claims, IsEmpty());
  must(prepare("a", kSmall, 3));
  EXPECT_THAT(vgpus(), ElementsAre("35C at 0", "35C at 3"));
}

TEST_F(ClaimSizesTest, FailIfTheDriverChoosesAnotherPlacement) {
  vendor.swallow_moves = true;
  const auto failed = prepare("a", kSmall, 3);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("it is at another placement"));
  EXPECT_THAT(vgpus(), IsEmpty());
  EXPECT_THAT(record().claims, IsEmpty());
  EXPECT_EQ(mixed_sizes(), mdev::GpuSwitch::off);
}

TEST_F(ClaimSizesTest, FailForAnotherModeOfTheGpu) {
  const auto of_one_size = prepare("a", kSmall, std::nullopt);
  ASSERT_FALSE(of_one_size);
  EXPECT_THAT(of_one_size.error().message,
              HasSubstr("has vGPUs of mixed sizes by now, and the claim was allocated for one size"));
  const auto misplaced = prepare("a", kSmall, 1);
  ASSERT_FALSE(misplaced);
  EXPECT_THAT(misplaced.error().message, HasSubstr("type H200X-35C has no placement 1"));
  for_dra[gpu()].mixed_sizes = false;
  publish();
  const auto of_mixed_sizes = prepare("a", kSmall, 3);
  ASSERT_FALSE(of_mixed_sizes);
  EXPECT_THAT(of_mixed_sizes.error().message, HasSubstr("has vGPUs of one size by now"));
  EXPECT_THAT(vgpus(), IsEmpty());
  must(prepare("a", kSmall, std::nullopt));
  EXPECT_THAT(vgpus(), ElementsAre("35C at 0"));
}

TEST_F(ClaimSizesTest, KeepTheModeUntilTheLastVgpuIsGone) {
  must(prepare("a", kSmall, 3));
  for_dra[gpu()].mixed_sizes = false;
  publish();
  EXPECT_TRUE(claimable.at(0).mixed_sizes);
  EXPECT_THAT(type(kSmall).placements, ElementsAre(0U, 3U));
  must(unprepare("a"));
  publish();
  EXPECT_FALSE(claimable.at(0).mixed_sizes);
  EXPECT_THAT(type(kSmall).placements, IsEmpty());
  must(prepare("b", kSmall, std::nullopt));
  EXPECT_EQ(mixed_sizes(), mdev::GpuSwitch::off) << "more of one size fit then";
}

TEST_F(ClaimSizesTest, GetNoFurtherPlacementsWhileVgpusExist) {
  must(prepare("a", kSmall, 3));
  for (api::VgpuType& one : claimable.at(0).types)
    if (one.id == kLarge) one.placements.clear();
  publish();
  EXPECT_THAT(asked, IsEmpty()) << "other counters would leave the GPU to this claim alone";
  EXPECT_THAT(type(kLarge).placements, IsEmpty());
  must(unprepare("a"));
  publish();
  EXPECT_THAT(asked, ElementsAre(gpu()));
  EXPECT_THAT(type(kLarge).placements, ElementsAre(1U, 2U));
}

/// The H200 in MIG mode, with two small GPU instances and one of another size.
class ClaimInstancesTest : public ClaimSizesTest {
 protected:
  static constexpr const char* kOfSmall = "1414";  // H200X-1-18C
  static constexpr const char* kOfOther = "1416";  // H200X-2-35C
  ClaimInstancesTest() {
    for_dra[gpu()] = {};
    kernel.enable_vfs(kGpu, 0);
    must(mig.set_mig(gpu(), true));
    kernel.enable_vfs(kGpu, 8);
    for (const std::uint32_t profile : {19U, 19U, 14U}) must(mig.make_instance(gpu(), profile));
    publish();
  }
  std::vector<std::string> published() const {
    std::vector<std::string> out;
    for (const api::VgpuType& type : claimable.at(0).types)
      out.push_back(fmt::format("{}x {} on {}", type.most_per_gpu.value_or(0), type.short_name, type.fills));
    return out;
  }
};

TEST_F(ClaimInstancesTest, ArePublishedAsTheGpuInstancesAreThere) {
  EXPECT_THAT(published(), ElementsAre("2x H200X-1-18C on gi-1g.18gb", "1x H200X-2-35C on gi-2g.35gb"));
  EXPECT_FALSE(claimable.at(0).whole) << "its instances would end";
  EXPECT_FALSE(claimable.at(0).has_one_size());
  EXPECT_EQ(claimable.at(0).health, api::GpuHealth::ready) << claimable.at(0).reason;
  EXPECT_EQ(must(api::read_claimable_gpus(api::claimable_gpus_text(claimable))), claimable);
  const std::uint32_t one = must(mig.read(gpu())).instances.front().id;
  must(mig.remove_instance(gpu(), one));
  publish();
  EXPECT_THAT(published(), ElementsAre("1x H200X-1-18C on gi-1g.18gb", "1x H200X-2-35C on gi-2g.35gb"));
}

TEST_F(ClaimInstancesTest, AreFilledAndLeftByClaims) {
  const auto instances = mig.instances(kGpu);
  must(prepare("a", kOfSmall, std::nullopt));
  must(prepare("b", kOfOther, std::nullopt));
  publish();
  EXPECT_THAT(asked, IsEmpty()) << "the counters under claims stay";
  EXPECT_THAT(published(), ElementsAre("2x H200X-1-18C on gi-1g.18gb", "1x H200X-2-35C on gi-2g.35gb"));
  must(prepare("c", kOfSmall, std::nullopt));
  EXPECT_EQ(vgpus().size(), 3U);
  const auto refused = prepare("d", kOfSmall, std::nullopt);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("none of type 1414 fits now"));
  for (const char* uid : {"a", "b", "c"}) must(unprepare(uid));
  EXPECT_THAT(vgpus(), IsEmpty());
  EXPECT_EQ(mig.instances(kGpu), instances) << "claims make and remove none";
}

TEST_F(ClaimInstancesTest, AreRefusedForTheWholeGpu) {
  const auto refused = ClaimHost::prepare("a", {{.gpu = gpu()}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("it has GPU instances (MIG)"));
  EXPECT_EQ(mig.instances(kGpu).size(), 3U);
}

TEST_F(ClaimInstancesTest, KeepTheGpuFromAClaimThatWasAllocatedBeforeThem) {
  claimable.at(0).whole = true;
  kernel.file(api::kClaimableGpusFile, api::claimable_gpus_text(claimable));
  const auto refused = ClaimHost::prepare("a", {{.gpu = gpu()}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("it has 3 GPU instances (MIG)"));
  EXPECT_EQ(mig.instances(kGpu).size(), 3U);
}

TEST_F(ClaimInstancesTest, LeaveTheGpuWholeOnceAllAreGone) {
  for (const mdev::GpuInstance& one : must(mig.read(gpu())).instances)
    must(mig.remove_instance(gpu(), one.id));
  publish();
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_TRUE(claimable.at(0).whole);
}

TEST_F(ClaimInstancesTest, AreUnknownWithoutTheLibrary) {
  has_library = false;
  publish();
  EXPECT_EQ(published().size(), 2U) << "a claim may have one already, and is prepared in a moment";
  EXPECT_THAT(claimable.at(0).vgpu_reason, HasSubstr("NVML does not report them: no libnvidia-ml.so.1"));
  claimable.clear();
  publish();
  EXPECT_THAT(published(), IsEmpty());
  EXPECT_FALSE(claimable.at(0).whole);
  EXPECT_THAT(claimable.at(0).vgpu_reason, HasSubstr("NVML does not report them: no libnvidia-ml.so.1"));
  has_library = true;
  publish();
  EXPECT_EQ(published().size(), 2U);
  EXPECT_EQ(claimable.at(0).vgpu_reason, "");
}

TEST(ClaimSizes, AreRightAfterADeathAtAnyChange) {
  std::size_t changes = 0;
  {
    SizesNode model;
    model.kernel.forget_changes();
    must(model.prepare("a", kSmall, 3));
    changes = model.kernel.changes().size();
  }
  ASSERT_GT(changes, 3U) << "the record, the mode, the vGPU, its placement";
  for (std::size_t n = 1; n <= changes; ++n) {
    SCOPED_TRACE(n);
    SizesNode node;
    node.kernel.forget_changes();
    ASSERT_TRUE(test::dies([&] {
      node.kernel.die_at_change(n);
      (void)node.prepare("a", kSmall, 3);
    }));
    must(node.prepare("a", kSmall, 3));
    EXPECT_THAT(node.vgpus(), ElementsAre("35C at 3"));
    must(node.unprepare("a"));
    EXPECT_THAT(node.vgpus(), IsEmpty());
  }
}

}  // namespace
}  // namespace ferry::host
