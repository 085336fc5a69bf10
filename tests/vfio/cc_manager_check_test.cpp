// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"
#include "tests/vfio/register_host.h"
#include "vfio/checks/passthrough_checks.h"

namespace ferry::vfio {
namespace {

using test::address;
using test::kGpu;
using test::kNext;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A host with an H100 and a T4.
class CcManagerCheck : public testing::Test {
 protected:
  CcManagerCheck() {
    for (const auto& [gpu, device] : {std::pair(kGpu, 0x2330), std::pair(kNext, 0x1eb8)}) {
      PciFunction& function = inventory_.functions[address(gpu)];
      function.address = address(gpu);
      function.vendor = kNvidia;
      function.device = static_cast<std::uint16_t>(device);
    }
  }
  void use(const char* gpu, Answer answer = Answer::yes) {
    findings_[address(gpu)].push_back({.rule = RuleId::in_use, .answer = answer, .about = address(gpu)});
  }
  std::optional<Check> check() { return cc_manager_check(host_, inventory_, findings_); }

  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  Inventory inventory_;
  GpuFindings findings_;
};

TEST_F(CcManagerCheck, IsAbsentWithoutTheManager) {
  use(kGpu);
  EXPECT_FALSE(check());
}

TEST_F(CcManagerCheck, WarnsOfGpusInUseThatHaveAMode) {
  tree_.file("run/nvidia/validations/.cc-manager-ctr-ready", "");
  EXPECT_EQ(check()->verdict, Verdict::pass);
  use(kNext);
  EXPECT_EQ(check()->verdict, Verdict::pass);
  use(kGpu, Answer::not_looked);
  EXPECT_EQ(check()->verdict, Verdict::pass);
  use(kGpu);
  EXPECT_EQ(check()->verdict, Verdict::warn);
  EXPECT_THAT(check()->found, AllOf(HasSubstr(kGpu), Not(HasSubstr(kNext))));
}

}  // namespace
}  // namespace ferry::vfio
