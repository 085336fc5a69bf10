// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/confidential_mode.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

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

TEST(ConfidentialMode, OfRegistersCountsMoreThanTheLabel) {
  const auto node = [](const std::vector<std::pair<const char*, std::optional<vfio::CcMode>>>& gpus) {
    api::HostStatus out;
    for (const auto& [address, mode] : gpus) {
      api::AcceleratorStatus& gpu = out.accelerators.emplace_back();
      gpu.address = vfio::PciAddress::parse(address).value();
      gpu.pci_class = "0302";
      gpu.registers = api::ReportedRegisters{.facts = {.cc_mode = mode}, .read_at = 1};
    }
    return out;
  };
  using enum vfio::CcMode;
  constexpr const char* kOne = "0000:17:00.0";
  constexpr const char* kOther = "0000:65:00.0";
  const auto shown = [&](const api::HostStatus& host, const char* label = "on") {
    ConfidentialMode mode = reached(label);
    mode.take_registers(host);
    return std::pair(mode.text(), mode.admits(of_kind(KataKind::snp)).has_value());
  };
  EXPECT_EQ(shown(node({{kOne, off}, {kOther, off}})),
            std::pair(std::string("off by the registers of 0000:17:00.0, 0000:65:00.0"), false));
  EXPECT_EQ(shown(node({{kOne, on}}), "off"),
            std::pair(std::string("on by the registers of 0000:17:00.0"), true));
  EXPECT_EQ(
      shown(node({{kOne, on}, {kOther, off}})),
      std::pair(std::string("off by the registers of 0000:65:00.0; on by the registers of 0000:17:00.0"),
                false));
  EXPECT_FALSE(shown(node({{kOne, devtools}})).second);
  EXPECT_FALSE(shown(node({{kOne, invalid}})).second);
  EXPECT_EQ(shown(node({{kOne, std::nullopt}}), "devtools"), std::pair(std::string("devtools"), false));
  EXPECT_EQ(shown(node({{kOne, on}, {kOther, std::nullopt}}), "failed"),
            std::pair(std::string("failed"), false))
      << "a pod may get the other one";
  EXPECT_FALSE(shown(node({{kOne, off}, {kOther, std::nullopt}})).second);
  EXPECT_EQ(shown(node({}), "ppcie"), std::pair(std::string("ppcie"), true));
  // An NVSwitch has no mode of its own for a GPU's classes.
  api::HostStatus with_switch = node({{kOne, on}, {kOther, off}});
  with_switch.accelerators.back().pci_class = "0680";
  EXPECT_TRUE(shown(with_switch).second);
}

}  // namespace
}  // namespace ferry::kata
