// SPDX-License-Identifier: Apache-2.0
// The answers and writes of each vGPU framework. Scans are in vgpu_inventory_test.cpp.
#include "mdev/framework.h"

#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"

namespace ferry::mdev {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

const vfio::PciAddress kParent = vfio::PciAddress::parse("0000:17:00.4").value();
const VgpuId kId{"5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10"};

/// "VALUE > FILE" of each write, below the parent's directory.
std::vector<std::string> writes_of(const Framework& framework) {
  const test::FakeKernel host;
  std::vector<AttributeWrite> writes = {framework.creation_write(kParent, "nvidia-1153", kId)};
  const auto params = framework.params_writes(host, kParent, kId, "a=1").value();
  writes.insert(writes.end(), params.begin(), params.end());
  writes.push_back(framework.placement_write(kParent, kId, 3));
  writes.push_back(framework.removal_write(kParent, kId));
  std::vector<std::string> out;
  for (const AttributeWrite& write : writes) {
    out.push_back(write.value + " > " +
                  std::filesystem::path(write.path).lexically_relative(vfio::sysfs_path(kParent)).string());
  }
  return out;
}

TEST(Framework, HasANameThatUsersSee) {
  EXPECT_EQ(mediated_on_gpu().name(), "mdev on the GPU");
  EXPECT_EQ(mediated_on_functions().name(), "mdev on virtual functions");
  EXPECT_EQ(vendor_vfio().name(), "vendor-specific VFIO");
  EXPECT_EQ(whole_functions().name(), "whole virtual functions");
  EXPECT_EQ(no_framework().name(), "none");
}

TEST(Framework, MakesMediatedDevicesByTheirUuid) {
  const std::string device = kId.text;
  for (const Framework* framework : {&mediated_on_gpu(), &mediated_on_functions(), &no_framework()}) {
    EXPECT_TRUE(framework->has_uuids());
    EXPECT_THAT(writes_of(*framework),
                ElementsAre(device + " > mdev_supported_types/nvidia-1153/create",
                            "a=1 > " + device + "/nvidia/vgpu_params",
                            "3 > " + device + "/nvidia/placement_id", "1 > " + device + "/remove"))
        << framework->name();
  }
}

TEST(Framework, MakesAVgpuOfVendorVfioByItsFunction) {
  EXPECT_FALSE(vendor_vfio().has_uuids());
  EXPECT_THAT(writes_of(vendor_vfio()),
              ElementsAre("nvidia-1153 > nvidia/current_vgpu_type", "a=1 > nvidia/vgpu_params",
                          "3 > nvidia/placement_id", "0 > nvidia/current_vgpu_type"));
  EXPECT_TRUE(vendor_vfio().creation_write(kParent, "1153", kId).only_if_unset);
}

TEST(Framework, ChoosesPlacementsForVgpusOnVirtualFunctionsOnly) {
  EXPECT_THAT(mediated_on_gpu().why_no_placement(), Not(IsEmpty()));
  EXPECT_THAT(whole_functions().why_no_placement(), Not(IsEmpty()));
  EXPECT_THAT(mediated_on_functions().why_no_placement(), IsEmpty());
  EXPECT_THAT(vendor_vfio().why_no_placement(), IsEmpty());
}

TEST(Framework, BindsFunctionsThatAVmGetsWhole) {
  EXPECT_TRUE(whole_functions().binds_functions());
  for (const Framework* framework :
       {&mediated_on_gpu(), &mediated_on_functions(), &vendor_vfio(), &no_framework()})
    EXPECT_FALSE(framework->binds_functions()) << framework->name();
}

TEST(Framework, IsByNvidiasDriverUnlessAVmGetsFunctionsWhole) {
  EXPECT_FALSE(whole_functions().by_nvidias_driver());
  for (const Framework* framework :
       {&mediated_on_gpu(), &mediated_on_functions(), &vendor_vfio(), &no_framework()})
    EXPECT_TRUE(framework->by_nvidias_driver()) << framework->name();
}

TEST(Framework, ChecksParametersOfWholeFunctionsOnly) {
  VgpuGpu gpu;
  for (const Framework* framework :
       {&mediated_on_gpu(), &mediated_on_functions(), &vendor_vfio(), &no_framework()})
    EXPECT_TRUE(framework->check_params(gpu, "a=020")) << framework->name();
  EXPECT_FALSE(whole_functions().check_params(gpu, "exec_quantum_ms=20")) << "the driver has none";
  gpu.has_vf_params = true;
  EXPECT_TRUE(whole_functions().check_params(gpu, "exec_quantum_ms=20"));
  EXPECT_FALSE(whole_functions().check_params(gpu, "exec_quantum_ms=020"));
}

TEST(Framework, OfAGpuWithoutVgpusMakesNone) {
  EXPECT_FALSE(no_framework().makes_vgpus());
  EXPECT_FALSE(VgpuGpu().on_itself());
  EXPECT_FALSE(VgpuGpu().on_virtual_functions());
}

}  // namespace
}  // namespace ferry::mdev
