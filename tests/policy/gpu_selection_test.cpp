// SPDX-License-Identifier: Apache-2.0
// Which GPUs an item is for, and what it says of their vGPUs, from the file on.
#include "policy/gpu_selection.h"

#include <gmock/gmock.h>

#include "policy/policy.h"
#include "policy/policy_yaml.h"

namespace ferry::policy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

mdev::VgpuGpu gpu(unsigned index, const char* address, std::uint16_t device, std::optional<int> numa = {}) {
  mdev::VgpuGpu out;
  out.index = index;
  out.function.address = vfio::PciAddress::parse(address).value();
  out.function.vendor = 0x10de;
  out.function.device = device;
  out.function.numa_node = numa;
  return out;
}

/// Two L40S on node 0, a T4 on node 1, and one whose node nobody knows.
std::vector<mdev::VgpuGpu> host() {
  return {gpu(0, "0000:17:00.0", 0x26b9, 0), gpu(1, "0000:65:00.0", 0x26b9, 0),
          gpu(2, "0000:ca:00.0", 0x1eb8, 1), gpu(3, "0001:01:00.0", 0x1eb8)};
}

std::string name_of(const vfio::PciFunction& function) {
  return function.device == 0x26b9 ? "AD102GL [L40S]" : "";
}

PolicyItem item(const std::string& selection) {
  const std::string text = "version: v2\npolicies:\n  a:\n  - {" + selection + ", mode: host}\n";
  const auto file = read_policies({.file = "p.yaml", .text = text});
  EXPECT_TRUE(file) << file.error().message;
  return file ? file->policies.front().items.front() : PolicyItem{};
}

std::vector<unsigned> chosen(const std::string& selection) {
  const PolicyItem by = item(selection);
  std::vector<unsigned> out;
  for (const mdev::VgpuGpu& gpu : host()) {
    if (by.matches(gpu, name_of)) out.push_back(gpu.index);
  }
  return out;
}

TEST(GpuSelection, IsByModelAsPeopleSeeIt) {
  EXPECT_THAT(chosen("model: \"*L40S*\""), ElementsAre(0, 1));
  EXPECT_THAT(chosen("model: \"*l40s*\""), ElementsAre(0, 1));
  EXPECT_THAT(chosen("model: \"AD102GL [L40S]\""), ElementsAre(0, 1));  // brackets are a set to a glob
  EXPECT_THAT(chosen("model: L40S"), ElementsAre(0, 1));  // what stands in the brackets is a name too
  EXPECT_THAT(chosen("model: 'l40?'"), ElementsAre(0, 1));
  EXPECT_THAT(chosen("model: L40"), IsEmpty());  // a part is not the whole
  EXPECT_THAT(chosen("model: 10de:1eb8"), ElementsAre(2, 3));
  EXPECT_THAT(chosen("model: ['*L40S*', '10de:1*']"), ElementsAre(0, 1, 2, 3));
}

TEST(GpuSelection, KnowsWhatIsNoGlob) {
  for (const char* pattern : {"*[L4", "[", "[!", "[]", "[]a", "a[!]", "[[:digit:]", "L4\\"})
    EXPECT_NE(glob_fault(pattern), "") << pattern;
  for (const char* pattern :
       {"", "*", "AD102GL [L40S]", "[]]", "[!]a]", "[^]]", "[[:digit:]]", "L4]", "\\[L4"})
    EXPECT_EQ(glob_fault(pattern), "") << pattern;
}

TEST(GpuSelection, OfModelsWithoutNamesIsByIds) {
  const PolicyItem by = item("model: \"*\"");
  EXPECT_TRUE(by.matches(host()[2], name_of));
  EXPECT_TRUE(by.matches(host()[0], {}));
  EXPECT_FALSE(item("model: \"*L40S*\"").matches(host()[0], {}));
}

TEST(GpuSelection, IsByAddressNodeAndVendor) {
  EXPECT_THAT(chosen("address: \"0000:ca:00.0\""), ElementsAre(2));
  EXPECT_THAT(chosen("address: 0000:17:00.0"), ElementsAre(0));  // a number to YAML 1.1, and none to us
  EXPECT_THAT(chosen("address: ['0000:17:00.0', '0001:01:00.0']"), ElementsAre(0, 3));
  EXPECT_THAT(chosen("numa-node: 0"), ElementsAre(0, 1));
  EXPECT_THAT(chosen("numa-node: [0, 1]"), ElementsAre(0, 1, 2));
  EXPECT_THAT(chosen("vendor: NVIDIA"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(chosen("vendor: 10de"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(chosen("vendor: 8086"), IsEmpty());
  EXPECT_THAT(chosen("vendor: [8086, nvidia]"), ElementsAre(0, 1, 2, 3));
}

TEST(GpuSelection, OfSeveralKindsNeedsAll) {
  EXPECT_THAT(chosen("model: \"*L40S*\", devices: [1, 2]"), ElementsAre(1));
  EXPECT_THAT(chosen("numa-node: 0, address: \"0000:ca:00.0\""), IsEmpty());
  EXPECT_THAT(chosen("device-filter: \"0x1EB810DE\", numa-node: 1"), ElementsAre(2));
  EXPECT_THAT(chosen("device-filter: \"0x1EB810DE\""), ElementsAre(2, 3));
}

PolicyItem divided(const std::string& keys) {
  const std::string text = "version: v2\npolicies:\n  a:\n  - {devices: all, mode: vgpu, " + keys + "}\n";
  const auto file = read_policies({.file = "p.yaml", .text = text});
  EXPECT_TRUE(file) << file.error().message;
  return file ? file->policies.front().items.front() : PolicyItem{};
}

std::string params_of(const vgpu::VgpuCount& entry) {
  return entry.params ? "'" + entry.params->text() + "'" : "as they are";
}

TEST(PolicyVgpus, HaveParametersOfTheirOwnOrTheItems) {
  const PolicyItem item = divided(
      "vgpu-params: {frame_rate_limiter: 0, disable_vnc: 1}, vgpu-devices: {A40-4Q: 2, A40-4C: {count: 1, "
      "vgpu-params: 'x=1 y=2'}, A40-4B: {count: 1, vgpu-params: ''}}");
  ASSERT_EQ(item.gpus.vgpus.size(), 3U);
  EXPECT_EQ(params_of(item.gpus.vgpus[0]), "'frame_rate_limiter=0,disable_vnc=1'");
  EXPECT_EQ(params_of(item.gpus.vgpus[1]), "'x=1,y=2'");
  EXPECT_EQ(params_of(item.gpus.vgpus[2]), "''");
  EXPECT_EQ(item.gpus.vgpus[1].count, 1U);
  EXPECT_EQ(params_of(divided("vgpu-devices: {A40-4Q: 2}").gpus.vgpus.at(0)), "as they are");
}

TEST(PolicyVgpus, MayHavePlacesAndSeveralSizes) {
  const PolicyItem item = divided(
      "mixed-sizes: true, vgpu-devices: {L40S-24Q: {count: 1, placement: 0}, L40S-12Q: {count: 2, placement: "
      "[24, 36]}}");
  EXPECT_TRUE(item.gpus.mixed_sizes);
  EXPECT_THAT(item.gpus.vgpus.at(0).placement, ElementsAre(0));
  EXPECT_THAT(item.gpus.vgpus.at(1).placement, ElementsAre(24, 36));
  EXPECT_FALSE(divided("mixed-sizes: false, vgpu-devices: {}").gpus.mixed_sizes);
}

// The GPU of another vendor, which counts by its name.
TEST(GpuSelection, MeansAnotherVendorsGpuByAddressVendorOrFilterAlone) {
  mdev::VgpuGpu other = gpu(4, "0000:07:00.0", 0x73bf, 0);
  other.function.vendor = 0x1002;
  other.by_name = true;
  for (const char* unnamed : {"devices: all", "devices: [4]", "numa-node: 0", "model: '*'"})
    EXPECT_FALSE(item(unnamed).matches(other, name_of)) << unnamed;
  for (const char* named : {"address: '0000:07:00.0'", "vendor: amd", "vendor: 1002, numa-node: 0",
                            "device-filter: '0x73BF1002'"})
    EXPECT_TRUE(item(named).matches(other, name_of)) << named;
  EXPECT_FALSE(item("vendor: intel").matches(other, name_of));
  EXPECT_FALSE(item("device-filter: '0x75A31002'").matches(other, name_of));
}

TEST(GpuSelection, NamesTheVendorOfADeviceFilter) {
  Policy policy;
  policy.items.push_back(item("device-filter: ['0x73BF1002', '0x26B910DE']"));
  EXPECT_THAT(rules_for(policy, {}).named_vendors, ElementsAre(0x1002, 0x10de));
}

}  // namespace
}  // namespace ferry::policy
