// SPDX-License-Identifier: Apache-2.0
// A policy on a GPU that has virtual functions.
#include <gmock/gmock.h>

#include "host/gpu_conditions.h"
#include "tests/host/node_apply_host.h"
#include "tests/support/fake_vendor_vfio.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Status = vfio::RebindResult::Status;

/// Beside the T4s one that makes its vGPUs on virtual functions, and has them on.
class NodeWithFunctions : public NodeApplyTest {
 protected:
  static constexpr const char* kFourth = "0000:08:00.0";
  static constexpr const char* kAway = "  - {devices: all, mode: passthrough}\n";

  NodeWithFunctions() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .sriov = true});
    kernel_.add_function(test::kinds::kTeslaT4Board, kFourth, 8, "nvidia", 4);
    kernel_.enable_vfs(kFourth, 4);
    vendor_.add_gpu(kFourth, test::t4_types());
    apply("  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
    kernel_.forget_changes();
  }
  /// Its driver, virtual functions and vGPUs.
  std::string fourth() const {
    return kernel_.driver_of(kFourth) + " " + std::to_string(kernel_.vfs_of(kFourth).size()) + " " +
           std::to_string(vendor_.devices_on(kFourth).size());
  }
  std::vector<std::string> texts(const vgpu::VgpuPlan& plan) const {
    std::vector<std::string> out;
    for (const vgpu::VgpuStep& step : plan.gpus.at(3).steps) out.push_back(step.text());
    return out;
  }
  static std::string refusal_of(const NodeOutcome& outcome) {
    const auto& error = outcome.vgpus.gpus.at(3).error;
    return error ? error->message : "(none)";
  }

  test::FakeVendorVfio vendor_{kernel_};
};

TEST_F(NodeWithFunctions, BindsOneWhoseFunctionsNoProcessUses) {
  const auto preview = preview_policy(context(), policy(kAway)).value();
  EXPECT_THAT(texts(preview.vgpus),
              ElementsAre("remove T4-4Q from 0000:08:00.4", "remove T4-4Q from 0000:08:00.5",
                          "disable 4 virtual functions of 0000:08:00.0"));
  EXPECT_EQ(preview.vgpus.gpus[3].steps[2].why, "p.yaml:4 gives it away whole");
  EXPECT_THAT(preview.bound.plan.refusals, IsEmpty());
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  const NodeOutcome outcome = apply(kAway);
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(fourth(), "vfio-pci 0 0");
  kernel_.forget_changes();
  apply(kAway);
  EXPECT_THAT(kernel_.writes(), IsEmpty());
  apply("  - {devices: [3], mode: vgpu, vgpu-devices: {T4-4Q: 2}}\n");
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

TEST_F(NodeWithFunctions, LeavesThemWithTheHost) {
  apply("  - {devices: all, mode: host}\n");
  EXPECT_EQ(fourth(), "nvidia 4 0");
}

TEST_F(NodeWithFunctions, KeepsOneOfWhoseFunctionsOneIsInUse) {
  probe_.held = "0000:08:00.6";  // without a vGPU
  const NodeOutcome outcome = apply(kAway);
  EXPECT_EQ(
      refusal_of(outcome),
      "GPU 3 (0000:08:00.0): its virtual functions would have to be removed, and 0000:08:00.6 is in use: VM "
      "tenant (pid 412) holds its group");
  EXPECT_EQ(fourth(), "nvidia 4 2");
  EXPECT_EQ(kernel_.driver_of(kFirst), "vfio-pci") << "the others go";
}

TEST_F(NodeWithFunctions, KeepsOneOfWhoseFunctionsOneIsBound) {
  kernel_.remove("sys/devices/pci0000:00/0000:08:00.7/nvidia/current_vgpu_type");
  kernel_.link("sys/devices/pci0000:00/0000:08:00.7/driver", "../../../bus/pci/drivers/vfio-pci");
  EXPECT_THAT(refusal_of(apply(kAway)), HasSubstr("0000:08:00.7 is bound to a VFIO driver for passthrough"));
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

// Its vGPUs and functions would go for nothing.
TEST_F(NodeWithFunctions, KeepsOneThatCannotGoAllTheSame) {
  probe_.held = kFourth;
  const auto preview = preview_policy(context(), policy(kAway)).value();
  EXPECT_THAT(texts(preview.vgpus), IsEmpty());
  ASSERT_THAT(preview.bound.plan.refusals, SizeIs(1));
  EXPECT_THAT(preview.bound.plan.refusals[0].reasons, ElementsAre(HasSubstr("0000:08:00.0 is in use")))
      << "what would go with it is no reason";
  const NodeOutcome outcome = apply(kAway);
  EXPECT_EQ(outcome.vgpus.gpus.at(3).kind, vgpu::GpuOutcome::Kind::unmanaged);
  std::vector<std::string> refused;
  for (const vfio::RebindResult& result : outcome.bound.results) {
    if (result.status == Status::refused) refused.push_back(result.devices.front().text());
  }
  EXPECT_THAT(refused, ElementsAre(kFourth));
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

// Who uses it, or a vGPU on it, would else let go for nothing.
TEST_F(NodeWithFunctions, SaysBesideWhoUsesItWhatLasts) {
  kernel_.remove("sys/devices/pci0000:00/0000:08:00.7/nvidia/current_vgpu_type");
  kernel_.link("sys/devices/pci0000:00/0000:08:00.7/driver", "../../../bus/pci/drivers/vfio-pci");
  const vfio::PciAddress fourth = vfio::PciAddress::parse(kFourth).value();
  const auto away_itself = HasSubstr("0000:08:00.7 is bound to a VFIO driver for passthrough");
  for (const char* held : {kFourth, "0000:08:00.4"}) {
    SCOPED_TRACE(held);
    probe_.held = held;
    const auto in_use = HasSubstr("VM tenant (pid 412)");
    GpuCondition before = conditions_of(preview_policy(context(), policy(kAway)).value()).at(fourth);
    EXPECT_THAT(before.reasons, testing::UnorderedElementsAre(in_use, away_itself));
    before.users = probe_.look({{{.device = held, .nodes = {}}}}).value().users.at(held);
    EXPECT_FALSE(before.only_in_use());
    EXPECT_THAT(conditions_of(apply(kAway)).at(fourth).reasons,
                testing::UnorderedElementsAre(in_use, away_itself));
  }
  EXPECT_EQ(kernel_.driver_of(kFourth), "nvidia");
}

TEST_F(NodeWithFunctions, PutsVgpusBackWhereFunctionsStay) {
  // The two vGPUs, then the functions; whatever the driver says of it.
  kernel_.fail_change(3, EBUSY);
  const NodeOutcome outcome =
      apply_policy(context(), policy("  - {devices: [3], mode: passthrough}\n")).value();
  EXPECT_EQ(outcome.vgpus.gpus.at(3).kind, vgpu::GpuOutcome::Kind::failed);
  EXPECT_THAT(outcome.vgpus.gpus.at(3).undo_errors, IsEmpty());
  EXPECT_EQ(fourth(), "nvidia 4 2");
}

}  // namespace
}  // namespace ferry::host
