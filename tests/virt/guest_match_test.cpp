// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "virt/selftest.h"

namespace ferry::virt {
namespace {

using testing::ElementsAre;

constexpr PciIds kGpu{
    .vendor = 0x10de, .device = 0x2684, .subsystem_vendor = 0x10de, .subsystem_device = 0x16f3};

GuestDevice at(std::uint8_t bus, PciIds ids) {
  return {
      .address = {.domain = 0, .bus = bus, .device = 0, .function = 0}, .ids = ids, .class_code = 0x030000};
}

std::vector<std::string> seen(const std::vector<ExpectedDevice>& expected,
                              const std::vector<GuestDevice>& guest) {
  std::vector<std::string> out;
  for (const SelftestDevice& device : match_guest(expected, guest)) {
    out.push_back(device.device + " " + (device.seen_as ? device.seen_as->text() : "unseen"));
  }
  return out;
}

TEST(GuestMatch, NeedsEachOfTheFourIds) {
  for (auto PciIds::*const field :
       {&PciIds::vendor, &PciIds::device, &PciIds::subsystem_vendor, &PciIds::subsystem_device}) {
    PciIds other = kGpu;  // NOLINT(misc-const-correctness): it is changed through the member pointer
    other.*field = static_cast<std::uint16_t>(other.*field + 1);
    EXPECT_THAT(seen({{.device = "a", .ids = kGpu}}, {at(1, other)}), ElementsAre("a unseen"));
  }
  EXPECT_THAT(seen({{.device = "a", .ids = kGpu}}, {at(1, kGpu)}), ElementsAre("a 0000:01:00.0"));
}

TEST(GuestMatch, NeedsTwoForTwoEqualGpus) {
  EXPECT_THAT(seen({{.device = "a", .ids = kGpu}, {.device = "b", .ids = kGpu}}, {at(1, kGpu)}),
              ElementsAre("a 0000:01:00.0", "b unseen"));
  EXPECT_THAT(seen({{.device = "a", .ids = kGpu}, {.device = "b", .ids = kGpu}}, {at(1, kGpu), at(2, kGpu)}),
              ElementsAre("a 0000:01:00.0", "b 0000:02:00.0"));
}

TEST(GuestMatch, DoesNotTakeAWholeGpuForAVgpuOfItsVendor) {
  PciIds vgpu = kGpu;
  vgpu.subsystem_device = 0x130c;
  const ExpectedDevice expected_vgpu{.device = "vgpu", .ids = kGpu, .exact = false};
  const ExpectedDevice expected_gpu{.device = "gpu", .ids = kGpu};
  EXPECT_THAT(seen({expected_vgpu, expected_gpu}, {at(1, kGpu)}),
              ElementsAre("vgpu unseen", "gpu 0000:01:00.0"));
  EXPECT_THAT(seen({expected_vgpu, expected_gpu}, {at(1, kGpu), at(2, vgpu)}),
              ElementsAre("vgpu 0000:02:00.0", "gpu 0000:01:00.0"));
  PciIds other_vendor = kGpu;
  other_vendor.vendor = 0x8086;
  EXPECT_THAT(seen({expected_vgpu}, {at(1, other_vendor)}), ElementsAre("vgpu unseen"));
}

TEST(GuestMatch, PassesOnlyWhenEverythingWasSeen) {
  SelftestReport report;
  EXPECT_FALSE(report.passed());
  report.devices = match_guest({{.device = "a", .ids = kGpu}, {.device = "b", .ids = kGpu}}, {at(1, kGpu)});
  EXPECT_FALSE(report.passed());
  report.devices = match_guest({{.device = "a", .ids = kGpu}}, {at(1, kGpu)});
  EXPECT_TRUE(report.passed());
}

}  // namespace
}  // namespace ferry::virt
