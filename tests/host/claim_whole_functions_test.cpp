// SPDX-License-Identifier: Apache-2.0
// Claims for virtual functions that VMs get whole, of an Intel GPU under xe.
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "host/claims/claimable_gpus.h"
#include "tests/host/claim_node.h"
#include "tests/vfio/rebinds.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGpu = "0000:17:00.0";
constexpr const char* kType = "8086:e211";

/// A GPU with three virtual functions on its driver, whose policy is `{allocation: dra}`.
class FunctionsNode {
 public:
  FunctionsNode() {
    kernel_.add_driver({.name = "xe", .ids = {kType, "8086:e20b"}, .sriov = true});
    kernel_.add_driver({.name = "xe-vfio-pci", .module = "xe_vfio_pci", .vfio = true});
    kernel_.file("lib/modules/6.19.0/modules.alias",
                 "alias vfio_pci:v00008086d0000E211sv*sd*bc*sc*i* xe_vfio_pci\n");
    kernel_.file("proc/sys/kernel/osrelease", "6.19.0\n");
    kernel_.file("proc/sys/kernel/random/boot_id", "b\n");
    kernel_.file("dev/vfio/vfio", "");
    kernel_.add_function({.address = kGpu,
                          .ids = "8086:e20b",
                          .class_code = 0x030000,
                          .group = 17,
                          .driver = "xe",
                          .totalvfs = 8,
                          .vf_ids = kType});
    kernel_.enable_vfs(kGpu, 3);
    for (const std::string& function : kernel_.vfs_of(kGpu))
      kernel_.file(fmt::format("sys/bus/pci/devices/{}/resource", function),
                   "0xf6000000 0xf6ffffff 0x40200\n0x0 0x0 0x0\n0x4400000000 0x45ffffffff 0x14220c\n");
    publish();
  }
  static vfio::PciAddress gpu() { return must(vfio::PciAddress::parse(kGpu)); }

  void publish() {
    const vfio::Inventory inventory = must(vfio::scan(kernel_));
    const ScannedNode node{.inventory = inventory,
                           .vgpus = must(vgpu::scan_known_vgpus(kernel_, inventory, rules_))};
    ClaimableFacts facts{.node = node,
                         .models = models_,
                         .rules = rules_,
                         .for_dra = for_dra_,
                         .dra = dra_,
                         .before = claimable_};
    must(read_claimable_facts(kernel_, facts));
    claimable_ = claimable_gpus(facts);
    kernel_.file(api::kClaimableGpusFile, api::claimable_gpus_text(claimable_));
  }
  ClaimKeeper::Answer prepare(const std::string& uid) {
    return keeper_.serve(ClaimNode::request(uid, {{.gpu = gpu(), .type = kType}}));
  }
  ClaimKeeper::Answer unprepare(const std::string& uid) {
    api::ClaimRequest undo = ClaimNode::request(uid, {});
    undo.action = api::ClaimAction::unprepare;
    return keeper_.serve(undo);
  }
  std::vector<std::string> drivers() const {
    std::vector<std::string> out;
    for (const std::string& function : kernel_.vfs_of(kGpu)) out.push_back(kernel_.driver_of(function));
    return out;
  }

  test::FakeKernel kernel_;
  const vfio::AcceleratorRules rules_{.vendors = {0x10de},
                                      .classes = {vfio::PciClass::display_3d},
                                      .of_other_vendors = {vfio::PciClass::vga},
                                      .named_vendors = {0x8086}};
  policy::ModelNames models_ = [](const vfio::PciFunction&) { return std::string("Battlemage G21"); };
  std::map<vfio::PciAddress, policy::AllowedDevices> for_dra_ = {{gpu(), {}}};
  std::set<vfio::PciAddress> dra_ = {gpu()};
  std::vector<api::ClaimableGpu> claimable_;
  ClaimUsers users_;
  ClaimKeeper keeper_{kernel_,
                      {.for_rebinds = users_, .for_vgpus = users_, .open_nodes = users_},
                      [this](const NodeProbes& uses) { return context(uses); },
                      {.lock_patience = std::chrono::milliseconds(1)}};

 private:
  NodeContext context(const NodeProbes& uses) {
    return {.rebind_context = {.host = &kernel_,
                               .writer = &kernel_,
                               .probe = &uses.for_rebinds,
                               .rules = rules_,
                               .on_step = {}},
            .vgpu_host = {.host = kernel_,
                          .writer = kernel_,
                          .uses = uses.for_vgpus,
                          .rules = rules_,
                          .node = "node-a",
                          .pause = [](auto) {}}};
  }
};

class ClaimWholeFunctions : public testing::Test, protected FunctionsNode {};

TEST_F(ClaimWholeFunctions, ArePublishedAsOneType) {
  ASSERT_EQ(claimable_.size(), 1U);
  const api::ClaimableGpu& gpu = claimable_[0];
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
  kernel_.enable_vfs(kGpu, 0);
  publish();
  EXPECT_THAT(claimable_.at(0).types, IsEmpty());
}

TEST_F(ClaimWholeFunctions, GoToTheVariantDriverAndComeBack) {
  const auto first = must(prepare("a"));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].function.value().text(), kernel_.vfs_of(kGpu).at(0));
  EXPECT_THAT(first[0].mdev_uuid, IsEmpty());
  EXPECT_FALSE(first[0].nodes.empty());
  EXPECT_THAT(drivers(), ElementsAre("xe-vfio-pci", "xe", "xe"));
  must(prepare("b"));
  EXPECT_EQ(must(prepare("a")), first) << "a second request changes nothing";
  publish();
  EXPECT_EQ(claimable_.at(0).types.at(0).most_per_gpu, 3U) << "the counters under claims stay";
  must(prepare("c"));
  EXPECT_THAT(drivers(), ElementsAre("xe-vfio-pci", "xe-vfio-pci", "xe-vfio-pci"));
  const auto refused = prepare("d");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("none of type 8086:e211 fits now"));
  must(unprepare("b"));
  EXPECT_THAT(drivers(), ElementsAre("xe-vfio-pci", "xe", "xe-vfio-pci"));
  for (const char* uid : {"a", "c"}) must(unprepare(uid));
  EXPECT_THAT(drivers(), ElementsAre("xe", "xe", "xe"));
  EXPECT_EQ(kernel_.driver_of(kGpu), "xe");
  EXPECT_THAT(must(load_claim_record(kernel_)).claims, IsEmpty());
}

TEST_F(ClaimWholeFunctions, KeepTheWholeGpuFromOtherClaims) {
  must(prepare("a"));
  const auto refused = keeper_.serve(ClaimNode::request("b", {{.gpu = gpu()}}));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("is in use by claim studio/render-a"));
  EXPECT_EQ(kernel_.driver_of(kGpu), "xe");
}

TEST_F(ClaimWholeFunctions, StayWithTheHostWhileAProcessUsesThem) {
  const std::string first = kernel_.vfs_of(kGpu).at(0);
  const std::string second = kernel_.vfs_of(kGpu).at(1);
  const vfio::DeviceUser process{
      .kind = vfio::DeviceUser::Kind::process, .name = "compute", .pid = 7, .what = "/dev/dri/card1"};
  users_.held[first] = process;
  must(prepare("a"));
  EXPECT_THAT(drivers(), ElementsAre("xe", "xe-vfio-pci", "xe")) << "the next one";
  must(unprepare("a"));
  users_.held[second] = process;
  users_.held[kernel_.vfs_of(kGpu).at(2)] = process;
  const auto refused = prepare("a");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("process compute (pid 7)"));
  EXPECT_THAT(drivers(), ElementsAre("xe", "xe", "xe"));
}

TEST(ClaimsOfWholeFunctions, AreRightAfterADeathAtAnyChange) {
  std::size_t changes = 0;
  {
    FunctionsNode model;
    model.kernel_.forget_changes();
    must(model.prepare("a"));
    changes = model.kernel_.changes().size();
  }
  ASSERT_GT(changes, 3U) << "the record, the journal, the override, the bind";
  for (std::size_t n = 1; n <= changes; ++n) {
    for (const bool finishes : {true, false}) {
      SCOPED_TRACE(testing::Message() << "change " << n << (finishes ? ", prepared again" : ", undone"));
      FunctionsNode node;
      node.kernel_.forget_changes();
      ASSERT_TRUE(test::dies([&] {
        node.kernel_.die_at_change(n);
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
    node.kernel_.forget_changes();
    ASSERT_TRUE(test::dies([&] {
      node.kernel_.die_at_change(2);  // after the record
      (void)node.prepare("a");
    }));
    const std::string first = node.kernel_.vfs_of(kGpu).at(0);
    ASSERT_EQ(must(load_claim_record(node.kernel_)).claims.size(), 1U);
    const std::filesystem::path function = "sys/bus/pci/devices/" + first;
    constexpr std::chrono::seconds kSoon{1};
    must(node.kernel_.write(function / "driver_override", "xe-vfio-pci", kSoon));
    must(node.kernel_.write("sys/bus/pci/drivers/xe/unbind", first, kSoon));
    must(node.kernel_.write("sys/bus/pci/drivers/xe-vfio-pci/bind", first, kSoon));
    ASSERT_EQ(node.kernel_.driver_of(first), "xe-vfio-pci");
    if (prepares) {
      const auto refused = node.prepare("a");
      ASSERT_FALSE(refused);
      EXPECT_THAT(refused.error().message, HasSubstr("another program has bound virtual function " + first));
      EXPECT_THAT(must(load_claim_record(node.kernel_)).claims, IsEmpty());
    }
    must(node.unprepare("a"));
    EXPECT_THAT(node.drivers(), ElementsAre("xe-vfio-pci", "xe", "xe")) << "it is the other program's";
    EXPECT_THAT(must(load_claim_record(node.kernel_)).claims, IsEmpty());
    must(node.prepare("b"));
    EXPECT_THAT(node.drivers(), ElementsAre("xe-vfio-pci", "xe-vfio-pci", "xe"));
  }
}

}  // namespace
}  // namespace ferry::host
