// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/host/claim_node.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using test::must;
using testing::HasSubstr;
using testing::IsEmpty;

using Node = ClaimNode;

class ClaimUseProbeTest : public testing::Test {
 protected:
  vfio::UseReport look(const std::vector<std::string>& devices) {
    std::vector<vfio::UseQuestion> questions;
    for (const std::string& device : devices) questions.push_back({.device = device, .nodes = {}});
    return must(probe_.look(questions));
  }

  ClaimNode node_;
  ClaimUsers others_;
  ClaimUseProbe probe_{node_.kernel, others_};
};

TEST_F(ClaimUseProbeTest, FindsTheDevicesOfClaims) {
  const auto devices =
      must(node_.prepare("a", {Node::whole(Node::kPair), Node::vgpu(Node::kMdev, Node::kMdevType),
                               Node::vgpu(Node::kVendor, Node::kVendorType)}));
  ASSERT_TRUE(devices.at(2).function);
  const std::vector<std::string> of_claims = {Node::kPair, Node::kOtherOfPair, devices.at(1).mdev_uuid,
                                              devices.at(2).function->text()};
  const auto report = look(of_claims);
  for (const std::string& device : of_claims) {
    ASSERT_EQ(report.of(device).size(), 1U) << device;
    EXPECT_EQ(report.of(device).front().text(), "ResourceClaim studio/render-a has it");
    EXPECT_THAT(std::string(report.of(device).front().remedy()), HasSubstr("delete the pod"));
  }
  const auto unclaimed = look({Node::kWhole, Node::kMdev, "0000:07:00.5"});
  EXPECT_THAT(unclaimed.users, IsEmpty());
  must(node_.unprepare("a"));
  EXPECT_THAT(look(of_claims).users, IsEmpty());
}

TEST_F(ClaimUseProbeTest, AddsThemToTheOtherUsers) {
  must(node_.prepare("a", {Node::whole(Node::kWhole)}));
  others_.held.emplace(Node::kWhole, vfio::DeviceUser{.kind = vfio::DeviceUser::Kind::virtual_machine,
                                                      .name = "tenant",
                                                      .pid = 412,
                                                      .what = "its group"});
  EXPECT_EQ(look({Node::kWhole}).of(Node::kWhole).size(), 2U);
}

TEST_F(ClaimUseProbeTest, IsBlindWithoutTheRecord) {
  node_.kernel.file(kClaimRecordFile, "{}");
  EXPECT_THAT(look({Node::kWhole}).blind, HasSubstr("/run/ferry/hostd/claims.json"));
  node_.kernel.remove(kClaimRecordFile);
  node_.kernel.remove("proc/sys/kernel/random/boot_id");
  EXPECT_THAT(look({Node::kWhole}).blind, IsEmpty()) << "a captured host has neither";
}

}  // namespace
}  // namespace ferry::host
