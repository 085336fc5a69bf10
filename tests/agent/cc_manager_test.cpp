// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/cc_manager.h"

#include <gmock/gmock.h>

#include "tests/support/must.h"

namespace ferry::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A GPU with one finding.
api::AcceleratorStatus gpu(const char* address, const char* id, const char* rule,
                           vfio::Answer answer = vfio::Answer::yes) {
  api::AcceleratorStatus out;
  out.address = test::must(vfio::PciAddress::parse(address));
  out.id = id;
  out.findings = {{.rule = rule, .about = out.address, .answer = answer, .text = "VM guest-7 has it open"}};
  return out;
}

const Labels kAsked = {{"nvidia.com/gpu.deploy.cc-manager", "true"},
                       {"nvidia.com/cc.mode", "on"},
                       {"nvidia.com/cc.mode.state", "off"}};

Labels with(Labels labels, const std::string& key, const std::string& value) {
  labels[key] = value;
  return labels;
}

TEST(CcManager, ResetsGpusInUseThatHaveModes) {
  api::HostStatus host;
  host.accelerators = {gpu("0000:17:00.0", "10de:2330", "in-use"),
                       gpu("0000:18:00.0", "10de:2330", "in-use", vfio::Answer::not_looked),
                       gpu("0000:19:00.0", "10de:2330", "fatal-errors"),
                       gpu("0000:3b:00.0", "10de:1eb8", "in-use"),
                       gpu("0000:5e:00.0", "1002:74a1", "in-use"),
                       gpu("0000:65:00.0", "10de:2901", "in-use")};
  const auto resets = resets_in_use(kAsked, host);
  ASSERT_THAT(resets, SizeIs(2));
  EXPECT_EQ(resets[0].gpu.text(), "0000:17:00.0");
  EXPECT_EQ(resets[0].text,
            "NVIDIA's CC manager is asked for the mode 'on' (nvidia.com/cc.mode) and resets 0000:17:00.0, "
            "which is in "
            "use: VM guest-7 has it open; set that label back, or end the use first");
  EXPECT_EQ(resets[1].gpu.text(), "0000:65:00.0");
}

TEST(CcManager, ResetsNothingWithoutARequestOrWithoutTheManager) {
  api::HostStatus host;
  host.accelerators = {gpu("0000:17:00.0", "10de:2330", "in-use")};
  EXPECT_THAT(resets_in_use(with(kAsked, "nvidia.com/cc.mode.state", "on"), host), IsEmpty());
  EXPECT_THAT(resets_in_use(with(kAsked, "nvidia.com/cc.mode", ""), host), IsEmpty());
  EXPECT_THAT(resets_in_use(with(kAsked, "nvidia.com/gpu.deploy.cc-manager", "false"), host), IsEmpty());
  EXPECT_THAT(resets_in_use(with(kAsked, "nvidia.com/cc.mode.state", "failed"), host), SizeIs(1));
}

}  // namespace
}  // namespace ferry::agent
