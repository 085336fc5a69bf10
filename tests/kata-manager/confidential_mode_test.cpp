// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/confidential_mode.h"

#include <gmock/gmock.h>

namespace ferry::kata {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using State = ConfidentialMode::State;

ConfidentialMode reached(const std::string& state, const std::string& asked_for = "") {
  return ConfidentialMode::of_labels({{"nvidia.com/cc.mode.state", state},
                                      {"nvidia.com/cc.mode", asked_for},
                                      {"nvidia.com/gpu.count", "8"}});
}

KataClass of_kind(KataKind kind) {
  KataClass out;
  out.name = "kata-a";
  out.kind = kind;
  return out;
}

TEST(ConfidentialMode, IsWhatTheManagerHasReached) {
  for (const auto& [label, state] :
       {std::pair{"on", State::on}, std::pair{"off", State::off}, std::pair{"devtools", State::devtools},
        std::pair{"ppcie", State::ppcie}, std::pair{"failed", State::failed}}) {
    EXPECT_EQ(reached(label).state, state);
    EXPECT_EQ(reached(label, label).text(), label);
  }
  EXPECT_EQ(reached("off", "on").text(), "off; on is asked for");
}

TEST(ConfidentialMode, IsNotGuessed) {
  const auto nobody = ConfidentialMode::of_labels({});
  EXPECT_FALSE(nobody.known());
  EXPECT_THAT(nobody.text(), HasSubstr("unknown: the node has no label nvidia.com/cc.mode.state"));
  // What is asked for is not there yet, and another program's label says nothing of the mode itself.
  const auto asked = ConfidentialMode::of_labels({{"nvidia.com/cc.mode", "on"},
                                                  {"nvidia.com/cc.ready.state", "true"},
                                                  {"nvidia.com/cc.capable", "true"}});
  EXPECT_FALSE(asked.known());
  EXPECT_THAT(asked.text(), HasSubstr("; on is asked for"));
  for (const char* strange : {"", "On", "true", "unknown", "on "}) EXPECT_FALSE(reached(strange).known());
  EXPECT_THAT(reached("On").text(), HasSubstr("is On, which is no mode"));
  EXPECT_THAT(ConfidentialMode().text(), HasSubstr("no Node object was named"));
}

TEST(ConfidentialMode, KeepsConfidentialClassesFromGpusThatProtectNothing) {
  for (const KataKind kind : {KataKind::snp, KataKind::tdx}) {
    for (const char* fit : {"on", "ppcie"}) EXPECT_TRUE(reached(fit).admits(of_kind(kind))) << fit;
    for (const char* unfit : {"off", "devtools", "failed"}) {
      const auto refused = reached(unfit, "on").admits(of_kind(kind));
      ASSERT_FALSE(refused) << unfit;
      EXPECT_EQ(refused.error().code, make_error_code(Errc::unsupported));
      EXPECT_THAT(refused.error().message,
                  AllOf(HasSubstr("class kata-a"), HasSubstr(unfit), HasSubstr("nvidia.com/cc.mode.state")));
      EXPECT_THAT(refused.error().hint, HasSubstr("nvidia.com/cc.mode to on"));
    }
    EXPECT_TRUE(ConfidentialMode().admits(of_kind(kind))) << "unknown is no reason";
  }
  EXPECT_TRUE(reached("off").admits(of_kind(KataKind::gpu)));
}

}  // namespace
}  // namespace ferry::kata
