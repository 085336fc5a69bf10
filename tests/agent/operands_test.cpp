// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/operands.h"

#include <ostream>

#include <gmock/gmock.h>

#include "api/labels.h"

namespace ferry::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kPlugin = "nvidia.com/gpu.deploy.sandbox-device-plugin";
constexpr const char* kKataPlugin = "nvidia.com/gpu.deploy.kata-sandbox-device-plugin";
constexpr const char* kValidator = "nvidia.com/gpu.deploy.sandbox-validator";

struct Value {
  const char* name;
  std::string before;
  std::string paused;
  std::string resumed;
};

void PrintTo(const Value& row, std::ostream* out) {
  *out << row.name;
}

class OperandValue : public testing::TestWithParam<Value> {};

// For each of the operands, and with nothing left once it is done.
TEST_P(OperandValue, IsPausedAndResumed) {
  const Value& row = GetParam();
  for (const char* name :
       {"sandbox-device-plugin", "kata-sandbox-device-plugin", "sandbox-validator", "device-plugin",
        "gpu-feature-discovery", "dcgm", "dcgm-exporter", "dcgm-dra", "dcgm-exporter-dra", "mig-manager"}) {
    const std::string key = api::kDeployPrefix + std::string(name);
    const Labels before = {{key, row.before}};
    const Labels paused = with_changes(before, pause_operands(before));
    EXPECT_EQ(paused.at(key), row.paused) << key;
    EXPECT_THAT(pause_operands(paused), IsEmpty()) << key;
    const Labels resumed = with_changes(paused, resume_operands(paused));
    EXPECT_EQ(resumed.at(key), row.resumed) << key;
    EXPECT_THAT(resume_operands(resumed), IsEmpty()) << key;
  }
}

const std::string kLong(50, 'x');

INSTANTIATE_TEST_SUITE_P(
    Values, OperandValue,
    testing::Values(Value{"True", "true", "paused-for-gpu-ferry", "true"},
                    Value{"False", "false", "false", "false"}, Value{"Empty", "", "", ""},
                    Value{"Other", "canary", "canary_paused-for-gpu-ferry", "canary"},
                    Value{"TooLongToMark", kLong, kLong, kLong},
                    Value{"PausedByTheDriverManager", "paused-for-driver-upgrade",
                          "paused-for-driver-upgrade", "paused-for-driver-upgrade"},
                    Value{"PausedByTheCcManager", "canary_paused-for-cc-mode-change",
                          "canary_paused-for-cc-mode-change", "canary_paused-for-cc-mode-change"},
                    Value{"OursFromBeforeACrash", "paused-for-gpu-ferry", "paused-for-gpu-ferry", "true"},
                    Value{"OursWithAnothersOnIt", "paused-for-gpu-ferry_paused-for-cc-mode-change",
                          "paused-for-gpu-ferry_paused-for-cc-mode-change", "paused-for-cc-mode-change"},
                    Value{"OursInTheMiddle", "canary_paused-for-gpu-ferry_paused-for-cc-mode-change",
                          "canary_paused-for-gpu-ferry_paused-for-cc-mode-change",
                          "canary_paused-for-cc-mode-change"}),
    [](const auto& row) { return row.param.name; });

TEST(Operands, ThatAreAbsentStayAbsent) {
  EXPECT_THAT(pause_operands({}), IsEmpty());
  EXPECT_THAT(resume_operands({}), IsEmpty());
  EXPECT_THAT(pause_operands({{"nvidia.com/gpu.deploy.vgpu-manager", "true"},
                              {"nvidia.com/gpu.deploy.driver", "true"},
                              {"sandbox-validator", "true"}}),
              IsEmpty());
}

TEST(Operands, AreKnownByTheirDaemonSets) {
  const Labels labels = {{"nvidia.com/gpu.deploy.dcgm", "true"},
                         {"nvidia.com/gpu.deploy.dcgm-exporter", "paused-for-gpu-ferry"},
                         {"nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade"},
                         {"nvidia.com/gpu.deploy.mig-manager", "false"},
                         {"nvidia.com/gpu.deploy.driver", "true"}};
  EXPECT_TRUE(can_be_paused(labels, "nvidia-dcgm"));
  EXPECT_TRUE(can_be_paused(labels, "nvidia-dcgm-exporter")) << "it is";
  EXPECT_FALSE(can_be_paused(labels, "nvidia-device-plugin-daemonset")) << "another has";
  EXPECT_FALSE(can_be_paused(labels, "nvidia-mig-manager"));
  EXPECT_FALSE(can_be_paused(labels, "gpu-feature-discovery")) << "nobody has it run here";
  EXPECT_FALSE(can_be_paused(labels, "nvidia-driver-daemonset"));
  EXPECT_FALSE(can_be_paused(labels, ""));
}

// An API server that lets us write to few labels would refuse all that goes with another.
TEST(Operands, ThatAreNotOursToPauseAreNotOursToResume) {
  EXPECT_THAT(resume_operands({{"nvidia.com/gpu.deploy.cc-manager", "paused-for-gpu-ferry"},
                               {"example.com/note", "paused-for-gpu-ferry"}}),
              IsEmpty());
}

TEST(Operands, AreGoneWhenTheirPodsAre) {
  EXPECT_THAT(paused_daemon_sets({{kPlugin, "true"}, {kKataPlugin, "false"}, {kValidator, "false"}}),
              IsEmpty());
  EXPECT_THAT(
      paused_daemon_sets({{kPlugin, "paused-for-gpu-ferry"},
                          {kKataPlugin, "canary_paused-for-gpu-ferry"},
                          {kValidator, "paused-for-cc-mode-change"}}),
      ElementsAre("nvidia-kata-sandbox-device-plugin-daemonset", "nvidia-sandbox-device-plugin-daemonset"));
}

TEST(LabelChanges, SetAndRemove) {
  EXPECT_THAT(with_changes({{"a", "1"}, {"b", "2"}}, {{"a", std::nullopt}, {"c", "3"}}),
              ElementsAre(testing::Pair("b", "2"), testing::Pair("c", "3")));
}

TEST(Operands, ThatStayAreNamed) {
  const std::string key = "nvidia.com/gpu.deploy.sandbox-validator";
  EXPECT_TRUE(
      operands_that_stay({{key, std::string(42, 'v')}, {"nvidia.com/gpu.deploy.driver", "true"}}).empty());
  EXPECT_EQ(operands_that_stay({{key, std::string(43, 'v')}}), std::vector<std::string>{key});
  for (const char* value : {"", "false", "true", "paused-for-gpu-ferry", "paused-for-driver-upgrade"})
    EXPECT_TRUE(operands_that_stay({{key, value}}).empty()) << value;
}

}  // namespace
}  // namespace ferry::agent
