// SPDX-License-Identifier: Apache-2.0
// Real hosts, as their kernels showed themselves: tests/fixtures/hosts.
#include "tests/support/captured_host.h"

#include <map>
#include <string>

#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/vfio/machines.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/pci/device_facts.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::CapturedHost;
using test::must;
using testing::ElementsAre;
using testing::Optional;

TEST(CapturedHostTest, AVirtualMachineWithOneGpuOfItsOwn) {
  const CapturedHost host("h200-in-a-vm");
  const Inventory inventory = must(scan(host));
  EXPECT_EQ(inventory.functions.size(), 7U);
  EXPECT_TRUE(inventory.groups.empty());

  const PciFunction* gpu = inventory.find(at("0000:00:06.0"));
  ASSERT_NE(gpu, nullptr);
  EXPECT_TRUE(test::gpu_rules().match(*gpu));
  EXPECT_EQ(gpu->device, 0x2335);
  EXPECT_THAT(gpu->subsystem_device, Optional(0x18bf));
  EXPECT_THAT(gpu->driver, Optional(std::string("nvidia")));
  EXPECT_EQ(gpu->sriov_totalvfs, 0U);
  EXPECT_FALSE(gpu->problem);

  const DeviceFacts facts = read_device_facts(host, gpu->address);
  EXPECT_THAT(facts.reset.methods, Optional(ElementsAre("flr")));
  EXPECT_THAT(facts.link.current_width, Optional(16U));
  const std::vector<Bar> bars = facts.bars.value_or(std::vector<Bar>{});
  ASSERT_EQ(bars.size(), 3U);
  constexpr std::uint64_t kFramebuffer = 256ULL << 30;  // 141 GB of memory behind 256 GiB of addresses
  EXPECT_EQ(bars[1].size, kFramebuffer);
  EXPECT_THAT(facts.notes, testing::IsEmpty());
}

TEST(CapturedHostTest, SaysWhatAVirtualMachineLacks) {
  const CapturedHost host("h200-in-a-vm");
  std::map<std::string, std::string> failed;
  Inventory inventory = must(scan(host));
  read_unit_facts(host, test::gpu_rules(), inventory);
  for (const Check& check : passthrough_checks(host, inventory, test::gpu_rules(),
                                               judge_all(inventory, test::gpu_rules(), {}, {}))) {
    if (check.verdict == Verdict::fail) failed.emplace(check.id, check.subject);
  }
  EXPECT_THAT(failed, testing::Contains(testing::Key("iommu-active")));
  EXPECT_THAT(failed, testing::Contains(testing::Pair("in-iommu-group", testing::HasSubstr("0000:00:06.0"))));
  EXPECT_THAT(failed, testing::Not(testing::Contains(testing::Key("bars-assigned"))));
}

}  // namespace
}  // namespace ferry::vfio
