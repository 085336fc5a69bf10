// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/two_owners.h"

#include <ostream>

#include <gmock/gmock.h>

namespace ferry::agent {
namespace {

using testing::IsEmpty;

constexpr const char* kVfioManager = "nvidia.com/gpu.deploy.vfio-manager";

struct Evidence {
  const char* name;
  Labels labels;
  OtherPrograms others;
  const char* owners;  // names and why, with "; " between
};

void PrintTo(const Evidence& row, std::ostream* out) {
  *out << row.name;
}

class OwnerTable : public testing::TestWithParam<Evidence> {};

TEST_P(OwnerTable, NamesTheOtherOwners) {
  std::string found;
  for (const OtherOwner& owner : other_owners(GetParam().labels, GetParam().others)) {
    if (!found.empty()) found += "; ";
    found += std::string(owner.name) + ": " + owner.why;
  }
  EXPECT_EQ(found, GetParam().owners);
}

OtherPrograms pods(std::vector<PodOnNode> here) {
  return {.pods = std::move(here), .daemon_sets = std::nullopt};
}
OtherPrograms looked(std::vector<PodOnNode> here, std::set<std::string> sets) {
  return {.pods = std::move(here), .daemon_sets = std::move(sets)};
}

INSTANTIATE_TEST_SUITE_P(
    Evidences, OwnerTable,
    testing::Values(
        Evidence{"NoLabelNoPod", {}, looked({}, {"nvidia-vfio-manager"}), ""},
        Evidence{"NobodyLooked", {}, {}, ""},
        Evidence{"LabelAlone",
                 {{kVfioManager, "true"}},
                 {},
                 "vfio-manager: label nvidia.com/gpu.deploy.vfio-manager=true"},
        Evidence{"LabelAndNoPodYet",
                 {{kVfioManager, "true"}},
                 looked({}, {"nvidia-vfio-manager"}),
                 "vfio-manager: label nvidia.com/gpu.deploy.vfio-manager=true"},
        Evidence{"LabelOfOneThatIsSwitchedOff", {{kVfioManager, "true"}}, looked({}, {"nvidia-dcgm"}), ""},
        Evidence{"LabelFalse", {{kVfioManager, "false"}}, {}, ""},
        Evidence{"LabelEmpty", {{kVfioManager, ""}}, {}, ""},
        Evidence{"PausedByAnother",
                 {{kVfioManager, "paused-for-cc-mode-change"}},
                 {},
                 "vfio-manager: label nvidia.com/gpu.deploy.vfio-manager=paused-for-cc-mode-change"},
        Evidence{"PausedByUs",
                 {{"nvidia.com/gpu.deploy.sandbox-device-plugin", "paused-for-gpu-ferry"}},
                 {},
                 "sandbox-device-plugin: label nvidia.com/gpu.deploy.sandbox-device-plugin=true"},
        Evidence{"PodWithoutALabel",
                 {},
                 pods({{.name = "nvidia-vfio-manager-x7k2p", .daemon_set = "nvidia-vfio-manager"}}),
                 "vfio-manager: its pod nvidia-vfio-manager-x7k2p is here"},
        Evidence{"PodOfOneThatIsBeingSwitchedOff",
                 {{kVfioManager, "true"}},
                 looked({{.name = "old", .daemon_set = "nvidia-vfio-manager"}}, {}),
                 "vfio-manager: its pod old is here"},
        Evidence{
            "OtherPods", {}, pods({{.name = "a", .daemon_set = ""}, {.name = "b", .daemon_set = "b"}}), ""},
        Evidence{"WithoutTheOperator",
                 {},
                 pods({{.name = "p", .daemon_set = "nvidia-kubevirt-gpu-dp-daemonset"}}),
                 "kubevirt-gpu-device-plugin: its pod p is here"},
        Evidence{"OthersOfTheOperatorOwnNothing",
                 {{"nvidia.com/gpu.deploy.vgpu-manager", "true"},
                  {"nvidia.com/gpu.deploy.cc-manager", "true"},
                  {"nvidia.com/gpu.deploy.sandbox-validator", "true"},
                  {"nvidia.com/gpu.deploy.driver", "true"}},
                 {},
                 ""},
        Evidence{"Several",
                 {{"nvidia.com/gpu.deploy.vgpu-device-manager", "true"},
                  {"nvidia.com/gpu.deploy.kata-sandbox-device-plugin", "true"}},
                 {},
                 "vgpu-device-manager: label nvidia.com/gpu.deploy.vgpu-device-manager=true; "
                 "kata-sandbox-device-plugin: label nvidia.com/gpu.deploy.kata-sandbox-device-plugin=true"}),
    [](const auto& row) { return row.param.name; });

TEST(TwoOwners, KnowTheOperatorByWhatItAlwaysHas) {
  EXPECT_TRUE(are_of_the_operator({"ferry", "nvidia-operator-validator"}));
  EXPECT_TRUE(are_of_the_operator({"gpu-feature-discovery"}));
  EXPECT_FALSE(are_of_the_operator({}));
  EXPECT_FALSE(are_of_the_operator({"ferry", "my-nvidia-thing"}));
}

TEST(TwoOwners, SayHowTheNodeIsHandedOver) {
  const auto owners =
      other_owners({{kVfioManager, "true"}, {"nvidia.com/gpu.deploy.sandbox-device-plugin", "true"}},
                   pods({{.name = "p", .daemon_set = "nvidia-kubevirt-gpu-dp-daemonset"}}));
  EXPECT_EQ(hand_over_text(owners),
            "spec: {vfioManager: {enabled: false}, sandboxDevicePlugin: {enabled: false}}");
  EXPECT_EQ(
      standby_because(other_owners({{kVfioManager, "true"}}, {})),
      "Ferry is on standby: NVIDIA's vfio-manager (label nvidia.com/gpu.deploy.vfio-manager=true) serves "
      "this node; ClusterPolicy hands it over with spec: {vfioManager: {enabled: false}}; the operator's "
      "DaemonSets have not been seen: --operator-namespace says where they are, and a label that an "
      "operator left behind is to be removed");
  EXPECT_EQ(
      standby_because(other_owners({{kVfioManager, "true"}}, looked({}, {"nvidia-vfio-manager"}))),
      "Ferry is on standby: NVIDIA's vfio-manager (label nvidia.com/gpu.deploy.vfio-manager=true) serves "
      "this node; ClusterPolicy hands it over with spec: {vfioManager: {enabled: false}}");
  const auto alone =
      other_owners({}, pods({{.name = "p", .daemon_set = "nvidia-kubevirt-gpu-dp-daemonset"}}));
  EXPECT_THAT(hand_over_text(alone), IsEmpty());
  EXPECT_EQ(standby_because(alone),
            "Ferry is on standby: NVIDIA's kubevirt-gpu-device-plugin (its pod p is here) serves this node; "
            "remove it to hand the node over");
}

// Withdrawn is every resource of the node, so only for one that runs.
TEST(TwoOwners, PutOurPluginOnStandbyBesideNvidias) {
  const auto said = [](const OtherPrograms& others) {
    return plugin_is_on_standby(others).value_or("as before");
  };
  const auto plugin = [](const char* daemon_set, bool runs) {
    return PodOnNode{.name = "p", .daemon_set = daemon_set, .runs = runs};
  };
  constexpr const char* kByHand = "nvidia-kubevirt-gpu-dp-daemonset";
  constexpr const char* kKata = "nvidia-kata-sandbox-device-plugin-daemonset";
  EXPECT_EQ(said({}), "as before") << "nobody has looked";
  EXPECT_EQ(said(pods({plugin(kByHand, true)})), "NVIDIA's kubevirt-gpu-device-plugin serves this node");
  EXPECT_EQ(said(pods({plugin(kByHand, false)})), "as before") << "its image cannot be pulled, perhaps";
  EXPECT_EQ(said(pods({plugin(kByHand, false), plugin(kKata, true)})),
            "NVIDIA's kata-sandbox-device-plugin serves this node");
  EXPECT_EQ(said(pods({plugin(kByHand, false), plugin(kByHand, true)})),
            "NVIDIA's kubevirt-gpu-device-plugin serves this node")
      << "one that ends beside its successor";
  EXPECT_EQ(said(pods({})), "as before") << "one that is replaced is gone for a moment";
  OtherPrograms gone = pods({plugin("nvidia-vfio-manager", true)});
  gone.unserved = kUnservedPatience;
  EXPECT_EQ(said(gone), "") << "vfio-manager registers nothing";
  EXPECT_FALSE(has_another_plugin(gone));
  gone.pods->push_back(plugin(kKata, false));
  EXPECT_TRUE(has_another_plugin(gone));
  EXPECT_EQ(said(gone), "as before");
  gone.pods.reset();
  EXPECT_EQ(said(gone), "as before") << "nobody looks any more";
}

}  // namespace
}  // namespace ferry::agent
