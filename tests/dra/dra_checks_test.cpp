// SPDX-License-Identifier: Apache-2.0
#include "dra/dra_checks.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "tests/support/scratch_directory.h"

namespace ferry::dra {
namespace {

using testing::HasSubstr;

class DraChecks : public testing::Test {
 protected:
  DraChecks() {
    scratch.file("var/lib/kubelet/plugins_registry/gpu-ferry.io-reg.sock", "");
    vfio::PciFunction function;
    function.address = {.domain = 0, .bus = 0x3b, .device = 0, .function = 0};
    function.vendor = 0x10de;
    function.device = 0x26b9;
    function.class_code = 0x030200;
    function.iommu_group = 42;
    inventory.functions.emplace(function.address, function);
    rules.vendors = {0x10de};
    rules.classes = {function.pci_class()};
  }

  Check check(const std::string& id) const {
    const auto all = dra_checks(host, inventory, rules);
    const auto found = std::ranges::find(all, id, &Check::id);
    return found == all.end() ? Check{.id = "none", .subject = {}, .why = {}} : *found;
  }
  std::string verdict(const std::string& id) const { return std::string(text(check(id).verdict)); }
  vfio::PciFunction& gpu() { return inventory.functions.begin()->second; }

  test::ScratchDirectory scratch;
  HostFs host{scratch.path()};
  vfio::Inventory inventory;
  vfio::AcceleratorRules rules;
};

TEST_F(DraChecks, FindTheDriversSocket) {
  EXPECT_EQ(verdict("dra-registered"), "pass");
  scratch.remove("var/lib/kubelet/plugins_registry/gpu-ferry.io-reg.sock");
  scratch.file("var/lib/kubelet/plugins_registry/gpu-ferry.io-0f3b1c2e-8a77-reg.sock", "");
  EXPECT_EQ(verdict("dra-registered"), "pass") << "of a pod with its UID";
  scratch.remove("var/lib/kubelet/plugins_registry/gpu-ferry.io-0f3b1c2e-8a77-reg.sock");
  scratch.file("var/lib/kubelet/plugins_registry/gpu-ferry.io.example.com-reg.sock", "");
  EXPECT_EQ(verdict("dra-registered"), "warn");
  EXPECT_THAT(check("dra-registered").fix, HasSubstr("dra.enabled=true"));
}

TEST_F(DraChecks, DoNotGuessWhereTheKubeletsFolderIsNotSeen) {
  test::ScratchDirectory bare;
  const HostFs other(bare.path());
  const auto all = dra_checks(other, {}, rules);
  for (const char* const id : {"dra-registered", "dra-other-drivers"}) {
    const auto found = std::ranges::find(all, std::string(id), &Check::id);
    ASSERT_NE(found, all.end());
    EXPECT_EQ(found->verdict, Verdict::unknown) << id;
  }
}

TEST_F(DraChecks, WarnOfDriversThatBindGpusToo) {
  EXPECT_EQ(verdict("dra-other-drivers"), "pass");
  scratch.file("var/lib/kubelet/plugins_registry/compute-domain.nvidia.com-reg.sock", "");
  EXPECT_EQ(verdict("dra-other-drivers"), "pass") << "this one binds no GPU";
  scratch.file("var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock", "");
  EXPECT_EQ(verdict("dra-other-drivers"), "warn");
  EXPECT_THAT(check("dra-other-drivers").fix, HasSubstr("PassthroughSupport"));
}

TEST_F(DraChecks, CountTheGpusThatClaimsCanHave) {
  EXPECT_EQ(verdict("dra-gpus"), "warn");
  api::ClaimableGpu claimable;
  claimable.address = gpu().address;
  claimable.for_dra = false;
  scratch.file(api::kClaimableGpusFile, api::claimable_gpus_text({claimable}));
  EXPECT_EQ(verdict("dra-gpus"), "warn") << "it has claims still, and goes back to the device plugin";
  claimable.for_dra = true;
  scratch.file(api::kClaimableGpusFile, api::claimable_gpus_text({claimable}));
  EXPECT_EQ(verdict("dra-gpus"), "pass");
  EXPECT_THAT(check("dra-gpus").found, HasSubstr("1 GPU in /run/ferry/claims/gpus.json"));
  scratch.file(api::kClaimableGpusFile, "{");
  EXPECT_EQ(verdict("dra-gpus"), "unknown");
  EXPECT_THAT(check("dra-gpus").found, testing::StartsWith("/run/ferry/claims/gpus.json: not JSON"));
  EXPECT_THAT(check("dra-gpus").fix, HasSubstr("of the same version"));
}

TEST_F(DraChecks, FailForAGpuThatGivesNoDevice) {
  api::ClaimableGpu claimable;
  claimable.address = gpu().address;
  const auto found = [&] {
    scratch.file(api::kClaimableGpusFile, api::claimable_gpus_text({claimable}));
    return verdict("dra-device") + ": " + check("dra-device").found;
  };
  claimable.whole = false;
  EXPECT_EQ(found(), "fail: no new claim gets a device of it: `allow` names no device that it has");
  claimable.types = {{.id = "1", .name = "NVIDIA L40S-6Q", .short_name = "L40S-6Q", .allowed = false}};
  EXPECT_EQ(found(), "fail: no new claim gets a device of it: `allow` names no device that it has");
  claimable.types.front().allowed = true;
  EXPECT_THAT(found(), testing::StartsWith("pass: "));
  claimable.vgpu_reason = "its virtual functions are missing";
  EXPECT_EQ(found(), "fail: no new claim gets a device of it: its virtual functions are missing");
  claimable.whole = true;
  EXPECT_THAT(found(), testing::StartsWith("pass: ")) << "it may be had whole";
  claimable.health = api::GpuHealth::unhealthy;
  claimable.reason = "is in no IOMMU group";
  EXPECT_EQ(found(), "fail: no new claim gets a device of it: is in no IOMMU group");
}

TEST_F(DraChecks, RemindOfKubevirtWhereThereAreMediatedDevices) {
  EXPECT_EQ(check("kubevirt-keeps-mediated").id, "none");
  scratch.file("sys/class/mdev_bus/0000:3b:00.0/uevent", "");
  EXPECT_EQ(verdict("kubevirt-keeps-mediated"), "unknown");
  EXPECT_THAT(check("kubevirt-keeps-mediated").fix, HasSubstr("mediatedDevicesConfiguration"));
}

TEST_F(DraChecks, JudgeEachGpu) {
  EXPECT_EQ(verdict("dra-iommu-group"), "pass");
  EXPECT_EQ(check("dra-iommu-group").subject, "0000:3b:00.0");
  EXPECT_EQ(verdict("dra-pci-address"), "pass");
  gpu().iommu_group.reset();
  EXPECT_EQ(verdict("dra-iommu-group"), "fail");
  vfio::PciFunction behind_vmd = gpu();
  behind_vmd.address.domain = 0x10000;
  inventory.functions.clear();
  inventory.functions.emplace(behind_vmd.address, behind_vmd);
  EXPECT_EQ(verdict("dra-pci-address"), "warn");
  rules.vendors = {0x1002};
  EXPECT_EQ(check("dra-pci-address").id, "none") << "no accelerator";
  api::ClaimableGpu claimable;
  claimable.address = behind_vmd.address;
  scratch.file(api::kClaimableGpusFile, api::claimable_gpus_text({claimable}));
  EXPECT_EQ(verdict("dra-iommu-group"), "fail") << "a policy gives it to claims";
}

}  // namespace
}  // namespace ferry::dra
