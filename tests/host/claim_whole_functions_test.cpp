// SPDX-License-Identifier: Apache-2.0
// Claims for virtual functions that VMs get whole, of an Intel GPU under xe.
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/host/claim_node.h"
#include "tests/vfio/rebinds.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kType = "8086:e211";

/// A GPU with three virtual functions on its driver, whose policy is `{allocation: dra}`.
class FunctionsNode : public OneGpuNode {
 public:
  FunctionsNode() : OneGpuNode("Battlemage G21") {
    rules.named_vendors = {0x8086};
    kernel.add_driver({.name = "xe", .ids = {kType, "8086:e20b"}, .sriov = true});
    kernel.add_driver({.name = "xe-vfio-pci", .module = "xe_vfio_pci", .vfio = true});
    kernel.file("lib/modules/6.19.0/modules.alias",
                "alias vfio_pci:v00008086d0000E211sv*sd*bc*sc*i* xe_vfio_pci\n");
    kernel.file("proc/sys/kernel/osrelease", "6.19.0\n");
    kernel.add_function({.address = kGpu,
                         .ids = "8086:e20b",
                         .class_code = 0x030000,
                         .group = 17,
                         .driver = "xe",
                         .totalvfs = 8,
                         .vf_ids = kType});
    kernel.enable_vfs(kGpu, 3);
    for (const std::string& function : kernel.vfs_of(kGpu))
      kernel.file(fmt::format("sys/bus/pci/devices/{}/resource", function),
                  "0xf6000000 0xf6ffffff 0x40200\n0x0 0x0 0x0\n0x4400000000 0x45ffffffff 0x14220c\n");
    publish();
  }

  ClaimKeeper::Answer prepare(const std::string& uid) {
    return ClaimHost::prepare(uid, {{.gpu = gpu(), .type = kType}});
  }
  std::vector<std::string> drivers() const {
    std::vector<std::string> out;
    for (const std::string& function : kernel.vfs_of(kGpu)) out.push_back(kernel.driver_of(function));
    return out;
  }
};

class ClaimWholeFunctions : public testing::Test, protected FunctionsNode {};

TEST_F(ClaimWholeFunctions, ArePublishedAsOneType) {
  ASSERT_EQ(claimable.size(), 1U);
  const api::ClaimableGpu& gpu = claimable[0];
  EXPECT_EQ(gpu.health, api::GpuHealth::ready) << gpu.reason;
  EXPECT_EQ(gpu.framework, api::VgpuFramework::vendor_vfio);
  ASSERT_EQ(gpu.types.size(), 1U);
  EXPECT_EQ(gpu.types[0], (api::VgpuType{.id = kType,
                                         .name = "virtual function 8086:e211",
                                         .short_name = kType,
                                         .framebuffer_mib = 4096,
                                         .most_per_gpu = 3,
                                         .fills = "vf"}))
      << "half of the BAR of 8 GiB is memory at least";
  kernel.enable_vfs(kGpu, 0);
  publish();
  EXPECT_THAT(claimable.at(0).types, IsEmpty());
}

TEST_F(ClaimWholeFunctions, GoToTheVariantDriverAndComeBack) {
  const auto first = must(prepare("a"));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].function.value().text(), kernel.vfs_of(kGpu).at(0));
  EXPECT_THAT(first[0].mdev_uuid, IsEmpty());
  EXPECT_FALSE(first[0].nodes.empty());
  EXPECT_THAT(drivers(), ElementsAre("xe-vfio-pci", "xe", "xe"));
  must(prepare("b"));
  EXPECT_EQ(must(prepare("a")), first) << "a second request changes nothing";
  publish();
  EXPECT_EQ(claimable.at(0).types.at(0).most_per_gpu, 3U) << "the counters under claims stay";
  must(prepare("c"));
  EXPECT_THAT(drivers(), ElementsAre("xe-vfio-pci", "xe-vfio-pci", "xe-vfio-pci"));
  const auto refused = prepare("d");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("none of type 8086:e211 fits now"));
  must(unprepare("b"));
  EXPECT_THAT(drivers(), ElementsAre("xe-vfio-pci", "xe", "xe-vfio-pci"));
  for (const char* uid : {"a", "c"}) must(unprepare(uid));
  EXPECT_THAT(drivers(), ElementsAre("xe", "xe", "xe"));
  EXPECT_EQ(kernel.driver_of(kGpu), "xe");
  EXPECT_THAT(record().claims, IsEmpty());
}

TEST_F(ClaimWholeFunctions, KeepTheWholeGpuFromOtherClaims) {
  must(prepare("a"));
  const auto refused = ClaimHost::prepare("b", {{.gpu = gpu()}});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("is in use by claim studio/render-a"));
  EXPECT_EQ(kernel.driver_of(kGpu), "xe");
}

TEST_F(ClaimWholeFunctions, StayWithTheHostWhileAProcessUsesThem) {
  const std::string first = kernel.vfs_of(kGpu).at(0);
  const std::string second = kernel.vfs_of(kGpu).at(1);
  const vfio::DeviceUser process{
      .kind = vfio::DeviceUser::Kind::process, .name = "compute", .pid = 7, .what = "/dev/dri/card1"};
  users.held[first] = process;
  must(prepare("a"));
  EXPECT_THAT(drivers(), ElementsAre("xe", "xe-vfio-pci", "xe")) << "the next one";
  must(unprepare("a"));
  users.held[second] = process;
  users.held[kernel.vfs_of(kGpu).at(2)] = process;
  const auto refused = prepare("a");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("process compute (pid 7)"));
  EXPECT_THAT(drivers(), ElementsAre("xe", "xe", "xe"));
}

TEST(ClaimsOfWholeFunctions, AreRightAfterADeathAtAnyChange) {
  std::size_t changes = 0;
  {
    FunctionsNode model;
    model.kernel.forget_changes();
    must(model.prepare("a"));
    changes = model.kernel.changes().size();
  }
  ASSERT_GT(changes, 3U) << "the record, the journal, the override, the bind";
  for (std::size_t n = 1; n <= changes; ++n) {
    for (const bool finishes : {true, false}) {
      SCOPED_TRACE(testing::Message() << "change " << n << (finishes ? ", prepared again" : ", undone"));
      FunctionsNode node;
      node.kernel.forget_changes();
      ASSERT_TRUE(test::dies([&] {
        node.kernel.die_at_change(n);
        (void)node.prepare("a");
      }));
      if (finishes) {
        must(node.prepare("a"));
        EXPECT_THAT(node.drivers(), ElementsAre("xe-vfio-pci", "xe", "xe"));
      }
      must(node.unprepare("a"));
      EXPECT_THAT(node.drivers(), ElementsAre("xe", "xe", "xe"));
    }
  }
}

TEST(ClaimsOfWholeFunctions, LeaveAFunctionThatAnotherProgramHasBoundSinceADeath) {
  for (const bool prepares : {true, false}) {
    FunctionsNode node;
    node.kernel.forget_changes();
    ASSERT_TRUE(test::dies([&] {
      node.kernel.die_at_change(2);  // after the record
      (void)node.prepare("a");
    }));
    const std::string first = node.kernel.vfs_of(FunctionsNode::kGpu).at(0);
    ASSERT_EQ(node.record().claims.size(), 1U);
    const std::filesystem::path function = "sys/bus/pci/devices/" + first;
    constexpr std::chrono::seconds kSoon{1};
    must(node.kernel.write(function / "driver_override", "xe-vfio-pci", kSoon));
    must(node.kernel.write("sys/bus/pci/drivers/xe/unbind", first, kSoon));
    must(node.kernel.write("sys/bus/pci/drivers/xe-vfio-pci/bind", first, kSoon));
    ASSERT_EQ(node.kernel.driver_of(first), "xe-vfio-pci");
    if (prepares) {
      const auto refused = node.prepare("a");
      ASSERT_FALSE(refused);
      EXPECT_THAT(refused.error().message, HasSubstr("another program has bound virtual function " + first));
      EXPECT_THAT(node.record().claims, IsEmpty());
    }
    must(node.unprepare("a"));
    EXPECT_THAT(node.drivers(), ElementsAre("xe-vfio-pci", "xe", "xe")) << "it is the other program's";
    EXPECT_THAT(node.record().claims, IsEmpty());
    must(node.prepare("b"));
    EXPECT_THAT(node.drivers(), ElementsAre("xe-vfio-pci", "xe-vfio-pci", "xe"));
  }
}

}  // namespace
}  // namespace ferry::host
