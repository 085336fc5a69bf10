// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/feature_labels.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "agent/operator_compat/cc_manager.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::agent {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Key;
using testing::Not;
using testing::Pair;

api::AcceleratorStatus gpu(std::string id, std::string model, std::string pci_class = "0302") {
  api::AcceleratorStatus out;
  out.id = std::move(id);
  out.model = std::move(model);
  out.pci_class = std::move(pci_class);
  out.driver = "nvidia";
  return out;
}

api::HostStatus host_of(std::vector<api::AcceleratorStatus> gpus) {
  api::HostStatus out;
  out.accelerators = std::move(gpus);
  out.features = api::NodeFeatures{.iommu = "on"};
  return out;
}

Labels labels_of(const api::HostStatus& host) {
  return feature_labels(host).value_or(Labels{{"unknown", ""}});
}

const api::AcceleratorStatus& l40() {
  static const api::AcceleratorStatus one = gpu("10de:26b5", "AD102GL [L40]");
  return one;
}
const api::AcceleratorStatus& h100() {
  static const api::AcceleratorStatus one = gpu("10de:2330", "GH100 [H100 SXM5 80GB]");
  return one;
}

TEST(FeatureLabels, SayWhatAllGpusAre) {
  api::HostStatus host = host_of({h100(), h100()});
  host.accelerators[0].mode = api::Mode::passthrough;
  host.accelerators[0].driver = "vfio-pci";
  host.features = api::NodeFeatures{.iommu = "on",
                                    .largest_group = 3,
                                    .machine = "Rack Server (2U) / B.",
                                    .vgpu_types = {{"H100XM-8C", 20}, {"H100XM-80C", 2}}};
  EXPECT_THAT(
      labels_of(host),
      ElementsAre(Pair("gpu-ferry.io/gpu.driver.nvidia.count", "1"),
                  Pair("gpu-ferry.io/gpu.driver.vfio-pci.count", "1"),
                  Pair("gpu-ferry.io/gpu.host.count", "1"), Pair("gpu-ferry.io/gpu.passthrough.count", "1"),
                  Pair("gpu-ferry.io/gpu.vgpu.count", "0"), Pair("gpu-ferry.io/iommu.largest-group", "3"),
                  Pair("gpu-ferry.io/iommu.mode", "on"), Pair("gpu-ferry.io/vgpu.H100XM-80C.count", "2"),
                  Pair("gpu-ferry.io/vgpu.H100XM-8C.count", "20"), Pair("nvidia.com/gpu.count", "2"),
                  Pair("nvidia.com/gpu.family", "hopper"), Pair("nvidia.com/gpu.machine", "Rack-Server-2U-B"),
                  Pair("nvidia.com/gpu.memory", "81920"), Pair("nvidia.com/gpu.mode", "compute"),
                  Pair("nvidia.com/gpu.product", "H100-SXM5-80GB")));
}

TEST(FeatureLabels, CallNoNodeByOneOfItsModels) {
  const Labels labels = labels_of(host_of({l40(), l40(), gpu("10de:1eb8", "TU104GL [Tesla T4]", "0300")}));
  EXPECT_THAT(labels, Contains(Pair("nvidia.com/gpu.count", "3")));
  EXPECT_THAT(labels, Contains(Pair("nvidia.com/gpu.L40.count", "2")));
  EXPECT_THAT(labels, Contains(Pair("nvidia.com/gpu.Tesla-T4.count", "1")));
  for (const char* of_one : {"product", "memory", "family", "mode"})
    EXPECT_THAT(labels, Not(Contains(Key(std::string("nvidia.com/gpu.") + of_one)))) << of_one;
}

TEST(FeatureLabels, OfModelsThatHaveItInCommonSayIt) {
  const Labels labels = labels_of(host_of({h100(), gpu("10de:2331", "GH100 [H100 PCIe]")}));
  EXPECT_THAT(labels, Contains(Pair("nvidia.com/gpu.memory", "81920")));
  EXPECT_THAT(labels, Contains(Pair("nvidia.com/gpu.family", "hopper")));
  EXPECT_THAT(labels, Not(Contains(Key("nvidia.com/gpu.product"))));
}

// kata-deploy's RuntimeClasses select it. Hopper has such a mode, which its registers show.
TEST(FeatureLabels, SayThatGpusHaveNoConfidentialMode) {
  constexpr const char* kLabel = "nvidia.com/cc.ready.state";
  EXPECT_THAT(labels_of(host_of({l40()})), Contains(Pair(kLabel, "false")));
  EXPECT_THAT(labels_of(host_of({l40(), gpu("10de:1eb8", "TU104GL [Tesla T4]", "0300")})),
              Contains(Pair(kLabel, "false")));
  EXPECT_THAT(labels_of(host_of({h100()})), Not(Contains(Key(kLabel))));
  EXPECT_THAT(labels_of(host_of({l40(), h100()})), Not(Contains(Key(kLabel))));
  EXPECT_THAT(labels_of(host_of({gpu("10de:ffff", "")})), Not(Contains(Key(kLabel))))
      << "its family is not known";
  const auto declared = feature_labels(host_of({l40(), h100()}), true).value_or(Labels());
  EXPECT_THAT(declared, Contains(Pair(kLabel, "false"))) << "a person declares it";
  EXPECT_THAT(feature_labels(host_of({}), true).value_or(Labels()), testing::IsEmpty()) << "there is no GPU";
  api::AcceleratorStatus read = h100();
  read.registers = api::ReportedRegisters{.facts = {.cc_mode = vfio::CcMode::off}, .read_at = 1};
  EXPECT_THAT(labels_of(host_of({l40(), read})), Contains(Pair(kLabel, "false"))) << "its registers say it";
  EXPECT_THAT(labels_of(host_of({h100(), read})), Not(Contains(Key(kLabel))));
  read.registers->facts.ppcie = true;
  EXPECT_THAT(feature_labels(host_of({l40(), read}), true).value_or(Labels()), Not(Contains(Key(kLabel))))
      << "a register counts more than the declaration";
  EXPECT_TRUE(is_feature_label(kLabel));
  EXPECT_FALSE(is_feature_label("nvidia.com/cc.mode"));
}

TEST(FeatureLabels, SayTheConfidentialModeThatAllRegistersShow) {
  const auto in_mode = [](std::optional<vfio::CcMode> mode, bool ppcie = false) {
    api::AcceleratorStatus out = h100();
    out.registers = api::ReportedRegisters{.facts = {.cc_mode = mode, .ppcie = ppcie}, .read_at = 1};
    return out;
  };
  const auto labels = [](const std::vector<api::AcceleratorStatus>& gpus) {
    const Labels all = labels_of(host_of(gpus));
    std::string out;
    for (const char* key : {"nvidia.com/cc.mode.state", "nvidia.com/cc.ready.state"})
      out += (out.empty() ? "" : " ") + (all.contains(key) ? all.at(key) : std::string("-"));
    return out;
  };
  using enum vfio::CcMode;
  EXPECT_EQ(labels({in_mode(on), in_mode(on)}), "on true");
  EXPECT_EQ(labels({in_mode(off), in_mode(off)}), "off false");
  EXPECT_EQ(labels({in_mode(off, true)}), "ppcie true");
  EXPECT_EQ(labels({in_mode(devtools)}), "devtools -") << "the manager has no ready state for it either";
  EXPECT_EQ(labels({in_mode(invalid)}), "- -");
  EXPECT_EQ(labels({in_mode(on), in_mode(off)}), "- -") << "a pod may get either";
  EXPECT_EQ(labels({in_mode(on), h100()}), "- -") << "the mode of one is not known";
  EXPECT_EQ(labels({in_mode(on), l40()}), "- -") << "a confidential pod could get the other";
  EXPECT_EQ(labels({in_mode(off), l40()}), "- false");
  EXPECT_EQ(labels({l40()}), "- false");
  EXPECT_TRUE(is_feature_label("nvidia.com/cc.mode.state"));
}

TEST(FeatureLabels, OfAModeAreLeftToTheManagerOnItsNodes) {
  constexpr const char* kMode = "nvidia.com/cc.mode.state";
  constexpr const char* kReady = "nvidia.com/cc.ready.state";
  for (const char* word : {"true", "paused-for-cc-mode-change"})
    EXPECT_TRUE(has_cc_manager({{"nvidia.com/gpu.deploy.cc-manager", word}}));
  for (const char* word : {"", "false"})
    EXPECT_FALSE(has_cc_manager({{"nvidia.com/gpu.deploy.cc-manager", word}}));
  EXPECT_FALSE(has_cc_manager({{"nvidia.com/cc.mode", "on"}}));
  const auto left = [](const Labels& record, Labels desired) {
    leave_mode_labels(record, desired);
    return desired;
  };
  const Labels off = {{kMode, "off"}, {kReady, "false"}};
  const Labels on = {{kMode, "on"}, {kReady, "true"}};
  EXPECT_EQ(left({}, on), Labels()) << "it sets none";
  EXPECT_EQ(left(off, on), off) << "it changes none";
  EXPECT_EQ(left(off, {}), off) << "it removes none";
  EXPECT_EQ(left({}, {{kReady, "false"}}), (Labels{{kReady, "false"}})) << "GPUs without such a mode";
}

TEST(FeatureLabels, SayNothingThatIsNotKnown) {
  const Labels one = labels_of(host_of({gpu("10de:ffff", "")}));
  EXPECT_THAT(one, Contains(Pair("nvidia.com/gpu.count", "1")));
  for (const char* of_one : {"product", "memory", "family", "machine"})
    EXPECT_THAT(one, Not(Contains(Key(std::string("nvidia.com/gpu.") + of_one)))) << of_one;
  EXPECT_THAT(one, Not(Contains(Key("gpu-ferry.io/iommu.largest-group"))));
  // What one GPU is says nothing of one that nobody knows.
  const Labels two = labels_of(host_of({h100(), gpu("10de:ffff", "GH100")}));
  EXPECT_THAT(two, Contains(Pair("nvidia.com/gpu.H100-SXM5-80GB.count", "1")));
  for (const char* of_one : {"product", "memory", "family", "GH100.count"})
    EXPECT_THAT(two, Not(Contains(Key(std::string("nvidia.com/gpu.") + of_one)))) << of_one;
}

TEST(FeatureLabels, OfANodeWithoutGpusAreNone) {
  EXPECT_EQ(labels_of(host_of({})), Labels());
  EXPECT_EQ(labels_of(host_of({gpu("10de:22a3", "GH100 [H100 NVSwitch]", "0680")})), Labels());
}

TEST(FeatureLabels, AreUnknownBeforeHostdHasSaidWhatTheyAreMadeFrom) {
  api::HostStatus host = host_of({l40()});
  host.features.reset();
  EXPECT_FALSE(feature_labels(host).has_value());
}

TEST(FeatureLabels, CountWhatNoDriverHas) {
  api::HostStatus host = host_of({l40()});
  host.accelerators[0].driver.reset();
  EXPECT_THAT(labels_of(host), Contains(Pair("gpu-ferry.io/gpu.driver.none.count", "1")));
}

struct Name {
  const char* what;
  std::string id;
  std::string subsystem;
  std::string model;
  std::string product;  ///< empty: none is said
};
class FeatureLabelsOf : public testing::TestWithParam<Name> {};
void PrintTo(const Name& name, std::ostream* out) {
  *out << name.what;
}

TEST_P(FeatureLabelsOf, AName) {
  api::AcceleratorStatus one = gpu(GetParam().id, GetParam().model);
  one.subsystem = GetParam().subsystem;
  const Labels labels = labels_of(host_of({one, one}));
  const auto product = labels.find("nvidia.com/gpu.product");
  EXPECT_EQ(product == labels.end() ? "" : product->second, GetParam().product);
  for (const auto& [key, value] : labels) {
    EXPECT_TRUE(vgpu::can_be_label(key.substr(key.find('/') + 1))) << key;
    EXPECT_TRUE(vgpu::can_be_label(value)) << value;
  }
}

const std::string kLongest(63, 'a');
INSTANTIATE_TEST_SUITE_P(
    Names, FeatureLabelsOf,
    testing::Values(Name{"of two boards", "10de:25b6", "10de:ffff", "GA107GL [A2 / A16]", "A2-A16"},
                    Name{"of one of two boards", "10de:25b6", "10de:14a9", "GA107GL [A2 / A16]", "A16"},
                    Name{"of the other", "10de:25b6", "10de:157e", "GA107GL [A2 / A16]", "A2"},
                    Name{"with a slash", "10de:1e78", "", "TU102GL [Quadro RTX 6000/8000]",
                         "Quadro-RTX-6000-8000"},
                    Name{"that ends badly", "10de:ffff", "", "X [-_.T 4 (rev. 2).]", "T-4-rev.-2"},
                    Name{"with other letters", "10de:ffff", "",
                         "X [\xc3\x9c"
                         "ber GPU\t\n,=]",
                         "ber-GPU"},
                    Name{"of nothing legal", "10de:ffff", "", "X [ /()_-.]", ""},
                    Name{"of a chip", "10de:ffff", "", "GH100", ""},
                    Name{"of two in brackets", "10de:ffff", "", "X [A] [B]", "B"},
                    Name{"with brackets that match badly", "10de:ffff", "", "X ]A[", ""},
                    Name{"without an end", "10de:ffff", "", "X [A", ""},
                    Name{"empty in brackets", "10de:ffff", "", "X []", ""},
                    Name{"as long as can be", "10de:ffff", "", "X [" + kLongest + "]", kLongest},
                    Name{"too long", "10de:ffff", "", "X [" + kLongest + "b]", ""}));

TEST(FeatureLabels, LeaveOutWhatMakesNoKey) {
  // "gpu." before it and ".count" behind.
  const std::string most(53, 'm');
  api::HostStatus host =
      host_of({gpu("10de:ffff", "X [" + most + "]"), gpu("10de:ffff", "X [" + most + "m]")});
  host.accelerators[0].driver = "odd driver";
  host.features = api::NodeFeatures{.iommu = "on or off", .vgpu_types = {{"A B", 1}, {"", 1}, {"A-1Q", 1}}};
  const Labels labels = labels_of(host);
  EXPECT_THAT(labels, Contains(Pair("nvidia.com/gpu." + most + ".count", "1")));
  EXPECT_THAT(labels, Contains(Key("gpu-ferry.io/vgpu.A-1Q.count")));
  for (const auto& [key, value] : labels) {
    EXPECT_TRUE(vgpu::can_be_label(key.substr(key.find('/') + 1))) << key;
    EXPECT_TRUE(vgpu::can_be_label(value)) << value;
  }
}

TEST(FeatureLabels, ComeByOneOfTwoWays) {
  EXPECT_EQ(parse_feature_way("none"), FeatureWay::none);
  EXPECT_EQ(parse_feature_way("node"), FeatureWay::node);
  EXPECT_EQ(parse_feature_way("nfd"), FeatureWay::nfd);
  EXPECT_EQ(parse_feature_way("file"), std::nullopt);
  EXPECT_EQ(parse_feature_way(""), std::nullopt);
}

TEST(FeatureLabels, AreOursByNameUnlessNfdHasSetThem) {
  const Labels ours = {{"gpu-ferry.io/gpu.passthrough.count", "1"},
                       {"gpu-ferry.io/gpu.driver.vfio-pci.count", "1"},
                       {"gpu-ferry.io/vgpu.L40S-12Q.count", "4"},
                       {"gpu-ferry.io/iommu.mode", "on"},
                       {"gpu-ferry.io/iommu.largest-group", "1"}};
  Labels node = ours;
  for (const char* other :
       {"gpu-ferry.io/policy", "gpu-ferry.io/state", "gpu-ferry.io/kata.kata-qemu", "gpu-ferry.io/deploy",
        "gpu-ferry.io/gpu.passthrough", "gpu-ferry.io/iommu.mode.x", "gpu-ferry.iox/iommu.mode",
        "nvidia.com/gpu.count", "my/gpu-ferry.io/iommu.mode"})
    node[other] = "x";
  EXPECT_EQ(own_features(node, ""), ours);
  EXPECT_EQ(
      own_features(node, "cpu-model.id,gpu-ferry.io/iommu.mode,gpu-ferry.io/vgpu.L40S-12Q.count").size(), 3U);
}

// Whoever adds a label has to know it again.
TEST(FeatureLabels, OfOurDomainAreAllKnownByName) {
  api::HostStatus host = host_of({l40(), h100()});
  host.features->largest_group = 2;
  host.features->machine = "A machine";
  host.features->vgpu_types = {{"L40-12Q", 4}};
  const Labels all = labels_of(host);
  Labels ours;
  for (const auto& label : all)
    if (label.first.starts_with("gpu-ferry.io/")) ours.insert(label);
  EXPECT_GE(ours.size(), 7U);
  EXPECT_EQ(own_features(all, ""), ours);
  for (const auto& [key, value] : all) EXPECT_TRUE(is_feature_label(key)) << key;
}

TEST(FeatureLabels, AreKnownByTheirKeys) {
  for (const char* key : {"nvidia.com/gpu.NVIDIA-L40S.count", "gpu-ferry.io/gpu.of-another-release",
                          "gpu-ferry.io/vgpu.L40S-12Q.count", "gpu-ferry.io/iommu.mode"})
    EXPECT_TRUE(is_feature_label(key)) << key;
  for (const char* key :
       {"", "gpu.count", "nvidia.com/", "nvidia.com/gpu.", "nvidia.com/gpu..count", "nvidia.com/gpu.present",
        "nvidia.com/gpu.workload.config", "nvidia.com/gpu.deploy.sandbox-validator",
        "nvidia.com/vgpu.config.state", "nvidia.com/mig.config", "gpu-ferry.io/gpu.", "gpu-ferry.io/policy",
        "gpu-ferry.io/state", "gpu-ferry.io/kata.kata-qemu", "kubernetes.io/hostname",
        "node-role.kubernetes.io/control-plane", "gpu-ferry.io/gpu.a/b", "x/gpu-ferry.io/gpu.a"})
    EXPECT_FALSE(is_feature_label(key)) << key;
}

}  // namespace
}  // namespace ferry::agent
