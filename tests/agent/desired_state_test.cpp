// SPDX-License-Identifier: Apache-2.0
#include "agent/desired_state/desired_state.h"

#include <ostream>

#include <gmock/gmock.h>

#include "policy/policy_export.h"
#include "tests/agent/snapshots.h"

namespace ferry::agent {
namespace {

using test::config;
using test::node_with;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

DesiredState desired_state_for(Labels labels, const DesiredDefaults& defaults = {}) {
  return resolve_desired_state(node_with(std::move(labels)), test::usual_configs(), defaults);
}

std::string shown(const DesiredState& desired_state) {
  switch (desired_state.kind) {
    case DesiredState::Kind::policy:
      return "policy " + desired_state.desired_policy.name + " by " + desired_state.desired_policy.source;
    case DesiredState::Kind::nothing:
      return "nothing: " + desired_state.reason;
    case DesiredState::Kind::standby:
      return "stand back: " + desired_state.reason;
    case DesiredState::Kind::invalid:
      return "invalid: " + desired_state.error.message +
             (desired_state.error.hint.empty() ? "" : " | " + desired_state.error.hint);
  }
  return {};
}

// Every combination of what the labels may say and what counts without them.
struct Labelled {
  const char* name;
  const char* operands;  // "-": no label
  const char* policy;
  const char* workload;
  const char* vgpus;
  const char* otherwise;  // "": nothing; "policy mixed"; else a workload
  const char* shown;
};

void PrintTo(const Labelled& row, std::ostream* out) {
  *out << row.name;
}

class DesiredStateTable : public testing::TestWithParam<Labelled> {};

TEST_P(DesiredStateTable, IsAsTheLabelsSay) {
  const Labelled& row = GetParam();
  Labels labels;
  for (const auto& [key, value] :
       {std::pair{api::kOperandsLabel, row.operands}, std::pair{api::kPolicyLabel, row.policy},
        std::pair{api::kWorkloadLabel, row.workload}, std::pair{policy::kVgpuConfigLabel, row.vgpus}}) {
    if (std::string_view(value) != "-") labels[key] = value;
  }
  DesiredDefaults defaults;
  defaults.workload = parse_workload(row.otherwise);
  if (std::string_view(row.otherwise) == "policy mixed") defaults.policy = "mixed";
  EXPECT_EQ(shown(desired_state_for(labels, defaults)), row.shown);
}

constexpr const char* kPassthrough =
    "policy vm-passthrough by label nvidia.com/gpu.workload.config=vm-passthrough";
constexpr const char* kNobody = "nothing: no label and no default selects a policy for this node";
constexpr const char* kOff = "nothing: label nvidia.com/gpu.deploy.operands=false";

INSTANTIATE_TEST_SUITE_P(
    Labels, DesiredStateTable,
    testing::Values(
        Labelled{"None", "-", "-", "-", "-", "", kNobody}, Labelled{"Empty", "", "", "", "", "", kNobody},
        Labelled{"DefaultWorkload", "-", "-", "-", "-", "container",
                 "policy container by default workload container"},
        Labelled{"DefaultPassthrough", "-", "-", "-", "-", "vm-passthrough",
                 "policy vm-passthrough by default workload vm-passthrough"},
        Labelled{"DefaultVgpu", "-", "-", "-", "-", "vm-vgpu",
                 "policy default by default workload vm-vgpu, default vGPU configuration default"},
        Labelled{"DefaultPolicy", "-", "-", "-", "-", "policy mixed", "policy mixed by default policy mixed"},
        Labelled{"Policy", "-", "mixed", "-", "-", "", "policy mixed by label gpu-ferry.io/policy=mixed"},
        Labelled{"PolicyBeforeAll", "true", "mixed", "vm-passthrough", "render-mix", "container",
                 "policy mixed by label gpu-ferry.io/policy=mixed"},
        Labelled{"PolicyFromAProfile", "-", "render-mix", "-", "-", "",
                 "policy render-mix by label gpu-ferry.io/policy=render-mix"},
        Labelled{"Container", "-", "-", "container", "-", "vm-passthrough",
                 "policy container by label nvidia.com/gpu.workload.config=container"},
        Labelled{"Passthrough", "-", "-", "vm-passthrough", "-", "", kPassthrough},
        Labelled{"PassthroughWithVgpusLeftOver", "-", "-", "vm-passthrough", "render-mix", "", kPassthrough},
        Labelled{"Vgpu", "-", "-", "vm-vgpu", "-", "",
                 "policy default by label nvidia.com/gpu.workload.config=vm-vgpu, default vGPU configuration "
                 "default"},
        Labelled{"VgpuWithItsConfiguration", "-", "-", "vm-vgpu", "render-mix", "container",
                 "policy render-mix by label nvidia.com/gpu.workload.config=vm-vgpu, label "
                 "nvidia.com/vgpu.config=render-mix"},
        Labelled{"ConfigurationAlone", "-", "-", "-", "render-mix", "",
                 "policy render-mix by label nvidia.com/vgpu.config=render-mix"},
        Labelled{"ConfigurationBeforeTheDefaultPolicy", "-", "-", "-", "render-mix", "policy mixed",
                 "policy render-mix by label nvidia.com/vgpu.config=render-mix"},
        Labelled{"ConfigurationOfADefaultWorkload", "-", "-", "-", "render-mix", "vm-vgpu",
                 "policy render-mix by default workload vm-vgpu, label nvidia.com/vgpu.config=render-mix"},
        Labelled{"ConfigurationAgainstADefaultWorkload", "-", "-", "-", "render-mix", "container",
                 "policy container by default workload container"},
        Labelled{"UnknownWorkload", "-", "-", "vm-vpgu", "-", "vm-passthrough",
                 "policy vm-passthrough by default workload vm-passthrough"},
        Labelled{"UnknownWorkloadWithoutADefault", "-", "-", "vm-vpgu", "-", "", kNobody},
        Labelled{"Off", "false", "-", "-", "-", "container", kOff},
        Labelled{"OffWhateverElseOfTheOperator", "false", "", "vm-vgpu", "render-mix", "policy mixed", kOff},
        Labelled{"OffForTheOperatorAlone", "false", "mixed", "vm-vgpu", "render-mix", "container",
                 "policy mixed by label gpu-ferry.io/policy=mixed"},
        Labelled{"OnByAnyOtherWord", "no", "-", "vm-passthrough", "-", "", kPassthrough}),
    [](const auto& row) { return row.param.name; });

TEST(DesiredState, NamesTheLabelsThatDoNotCountWithTheOperatorsSwitch) {
  const auto warnings = [](Labels labels) {
    labels[api::kOperandsLabel] = "false";
    return desired_state_for(labels, {}).warnings;
  };
  EXPECT_THAT(warnings({}), IsEmpty());
  EXPECT_THAT(
      warnings({{api::kWorkloadLabel, "vm-passthrough"}}),
      ElementsAre("label nvidia.com/gpu.workload.config=vm-passthrough does not count, since label "
                  "nvidia.com/gpu.deploy.operands=false is there; the label gpu-ferry.io/policy names "
                  "a policy that counts"));
  EXPECT_THAT(warnings({{policy::kVgpuConfigLabel, "small"}}), ElementsAre(HasSubstr("vgpu.config=small")));
  EXPECT_THAT(warnings({{api::kWorkloadLabel, "vm-vgpu"}, {policy::kVgpuConfigLabel, "small"}}), SizeIs(2));
  EXPECT_THAT(warnings({{api::kPolicyLabel, "mixed"}, {api::kWorkloadLabel, "vm-vgpu"}}), IsEmpty());
}

TEST(DesiredState, OfAWorkloadIsAPolicyForEveryGpu) {
  DesiredDefaults defaults;
  defaults.release.insert("nvidia-dcgm.service");
  const DesiredState desired_state = desired_state_for({{api::kWorkloadLabel, "vm-passthrough"}}, defaults);
  EXPECT_EQ(desired_state.desired_policy.config,
            "version: v2\nrelease: [nvidia-dcgm.service]\npolicies:\n  vm-passthrough:\n"
            "  - devices: all\n    mode: passthrough\n");
  const DesiredState host = desired_state_for({{api::kWorkloadLabel, "container"}});
  EXPECT_EQ(host.desired_policy.config,
            "version: v2\npolicies:\n  container:\n  - devices: all\n    mode: host\n");
  EXPECT_FALSE(host.of_vgpu_config);
}

// It has no word for one, and nvidia-k8s-vgpu-dm -w names services.
TEST(DesiredState, OfAVgpuProfileHasTheAgentsReleaseList) {
  const std::string v1 =
      "version: v1\nvgpu-configs:\n  small:\n  - devices: all\n    vgpu-devices: {T4-4Q: 4}\n";
  const std::string v2 =
      "version: v2\npolicies:\n  own:\n  - {devices: all, mode: vgpu, vgpu-devices: {T4-4Q: 4}}\n";
  const std::vector<ConfigText> configs = {{.file = "v1", .text = v1}, {.file = "v2", .text = v2}};
  DesiredDefaults defaults;
  const auto desired_state = [&](const char* name) {
    return resolve_desired_state(
               node_with({{policy::kVgpuConfigLabel, name}, {api::kWorkloadLabel, "vm-vgpu"}}), configs,
               defaults)
        .desired_policy;
  };
  EXPECT_EQ(desired_state("small").config, v1);
  defaults.release.insert("nvidia-dcgm.service");
  EXPECT_EQ(desired_state("small").policy.release, defaults.release);
  EXPECT_THAT(desired_state("small").config, HasSubstr("release: [nvidia-dcgm.service]"));
  EXPECT_EQ(desired_state("own").config, v2);
  EXPECT_EQ(desired_state("own").policy.release, vfio::default_release());
}

TEST(DesiredState, HasTheTextThatHoldsThePolicyWhole) {
  const DesiredState desired_state = desired_state_for({{api::kPolicyLabel, "mixed"}});
  EXPECT_EQ(desired_state.desired_policy.config, test::kPolicies);
  EXPECT_EQ(desired_state.desired_policy.policy.place, "policies.yaml:3");
  EXPECT_FALSE(desired_state.of_vgpu_config);
  EXPECT_TRUE(desired_state_for({{policy::kVgpuConfigLabel, "default"}}).of_vgpu_config);
}

TEST(DesiredState, SaysWhichLabelsDoNotCount) {
  EXPECT_THAT(desired_state_for({{api::kWorkloadLabel, "vm-vpgu"}}).warnings,
              ElementsAre("label nvidia.com/gpu.workload.config=vm-vpgu does not count: it is no workload; "
                          "did you mean 'vm-vgpu'?"));
  DesiredDefaults defaults;
  defaults.workload = Workload::container;
  EXPECT_THAT(desired_state_for({{policy::kVgpuConfigLabel, "render-mix"}}, defaults).warnings,
              ElementsAre("label nvidia.com/vgpu.config=render-mix does not count: this node is for "
                          "container, by default"));
  EXPECT_THAT(
      desired_state_for({{api::kWorkloadLabel, "container"}, {policy::kVgpuConfigLabel, "render-mix"}})
          .warnings,
      IsEmpty());
}

TEST(DesiredState, OfANameThatNobodyHoldsSuggestsOne) {
  const DesiredState typo = desired_state_for({{policy::kVgpuConfigLabel, "render-mx"}});
  EXPECT_EQ(
      shown(typo),
      "invalid: label nvidia.com/vgpu.config=render-mx: no policy or profile is called 'render-mx'; did you "
      "mean 'render-mix'? | there are: default, render-mix, mixed, quarters");
  EXPECT_TRUE(typo.of_vgpu_config);
  EXPECT_EQ(shown(resolve_desired_state(node_with({{api::kPolicyLabel, "any"}}), {}, {})),
            "invalid: label gpu-ferry.io/policy=any: no policy or profile is called 'any': none is given | a "
            "policy (docs/policy.md) or a vGPU profile file, in a ConfigMap that the agent is given");
  std::string many = "version: v1\nvgpu-configs:\n";
  for (int i = 0; i < 20; ++i) many += "  c" + std::to_string(i) + ": [{devices: all, vgpu-devices: {}}]\n";
  const std::vector<ConfigText> configs = {config("many.yaml", many)};
  EXPECT_THAT(shown(resolve_desired_state(node_with({{api::kPolicyLabel, "other"}}), configs, {})),
              HasSubstr("c10, c11 and 8 more"));
}

TEST(DesiredState, WarnsOfNamesThatNoLabelCanSay) {
  const std::vector<ConfigText> configs = {
      config("good.yaml", test::kPolicies),
      config("odd.yaml", "version: v1\nvgpu-configs:\n  two words: [{devices: all, vgpu-devices: {}}]\n")};
  const DesiredState desired_state =
      resolve_desired_state(node_with({{api::kPolicyLabel, "mixed"}}), configs, {});
  EXPECT_THAT(desired_state.warnings,
              ElementsAre(testing::StartsWith("odd.yaml:3: 'two words' can be chosen by no node's label")));
}

TEST(DesiredState, OfAConfigurationThatCannotBeReadSaysWhere) {
  const std::vector<ConfigText> configs = {config("good.yaml", test::kPolicies),
                                           config("bad.yaml", "version: v2\npolicies:\n  x: 7\n")};
  const DesiredState other = resolve_desired_state(node_with({{api::kPolicyLabel, "mixed"}}), configs, {});
  EXPECT_EQ(other.kind, DesiredState::Kind::policy) << shown(other);
  EXPECT_THAT(other.warnings, ElementsAre(testing::StartsWith("passed over: bad.yaml:3: policies.x: ")));
  EXPECT_THAT(shown(resolve_desired_state(node_with({{api::kPolicyLabel, "x"}}), configs, {})),
              testing::StartsWith("invalid: label gpu-ferry.io/policy=x: no readable policy or profile is "
                                  "called 'x', and a file cannot be read: bad.yaml:3: policies.x: "));
}

TEST(DesiredState, OfANameThatStandsTwiceNamesBothPlacesWhereTheySayDifferentThings) {
  std::string other(test::kPolicies);
  const std::string_view mixed = "mode: passthrough";
  other.replace(other.find(mixed), mixed.size(), "mode: host");
  const std::vector<ConfigText> configs = {config("a.yaml", test::kPolicies),
                                           config("b.yaml", test::kPolicies), config("c.yaml", other)};
  EXPECT_EQ(
      shown(resolve_desired_state(node_with({{api::kPolicyLabel, "mixed"}}), configs, {})),
      "invalid: label gpu-ferry.io/policy=mixed: 'mixed' stands at a.yaml:3 and, saying something else, "
      "at c.yaml:3 | give one of them another name");
  EXPECT_EQ(resolve_desired_state(node_with({{api::kPolicyLabel, "quarters"}}), configs, {}).kind,
            DesiredState::Kind::policy)
      << "that one says the same in all";
}

// As where the chart brings NVIDIA's file and the site has a copy of its own.
TEST(DesiredState, OfANameThatStandsTwiceAndSaysTheSameIsTheFirst) {
  const std::vector<ConfigText> configs = {config("a.yaml", test::kProfiles),
                                           config("b.yaml", "# Ours.\n" + std::string(test::kProfiles))};
  const DesiredState desired_state =
      resolve_desired_state(node_with({{policy::kVgpuConfigLabel, "render-mix"}}), configs, {});
  ASSERT_EQ(desired_state.kind, DesiredState::Kind::policy) << desired_state.error.message;
  EXPECT_EQ(desired_state.desired_policy.config, test::kProfiles);
  EXPECT_THAT(desired_state.warnings, IsEmpty());
}

// Of a profile the agent says what may let go, a policy says it itself.
TEST(DesiredState, OfAPolicyThatReadsLikeAProfileIsNeither) {
  const std::string policy =
      "version: v2\npolicies:\n  render-mix: [{devices: all, mode: vgpu, vgpu-devices: {L40S-12Q: 4}}]\n";
  const std::vector<ConfigText> configs = {config("a.yaml", test::kProfiles), config("b.yaml", policy)};
  EXPECT_EQ(resolve_desired_state(node_with({{policy::kVgpuConfigLabel, "render-mix"}}), configs, {}).kind,
            DesiredState::Kind::invalid);
}

TEST(DesiredState, OfAVgpuConfigurationTakesNoGpuFromItsDriver) {
  EXPECT_EQ(shown(desired_state_for({{policy::kVgpuConfigLabel, "mixed"}})),
            "invalid: label nvidia.com/vgpu.config=mixed: 'mixed' (policies.yaml:3) is more than a vGPU "
            "configuration: not all of its items have mode vgpu | choose it as a policy: kubectl label node "
            "gpu-7 gpu-ferry.io/policy=mixed");
  EXPECT_EQ(desired_state_for({{policy::kVgpuConfigLabel, "quarters"}}).kind, DesiredState::Kind::policy);
}

TEST(DesiredState, IsTheSamePolicyWhateverItIsCalledAndWhereverItStands) {
  const policy::Policy mixed = desired_state_for({{api::kPolicyLabel, "mixed"}}).desired_policy.policy;
  const policy::Policy quarters = desired_state_for({{api::kPolicyLabel, "quarters"}}).desired_policy.policy;
  const policy::Policy profile = desired_state_for({{api::kPolicyLabel, "render-mix"}}).desired_policy.policy;
  EXPECT_TRUE(same_policy(mixed, mixed));
  EXPECT_FALSE(same_policy(mixed, quarters));
  EXPECT_TRUE(same_policy(quarters, profile));
}

constexpr const char* kSelecting =
    "version: v2\n"
    "nodeSelector:\n"
    "  render: {example.com/pool: render, example.com/site: a}\n"
    "  whole: {example.com/pool: whole}\n"
    "policies:\n"
    "  render: [{devices: all, mode: vgpu, vgpu-devices: {L40S-12Q: 4}}]\n"
    "  whole: [{devices: all, mode: passthrough}]\n";

std::string selected(Labels labels, const DesiredDefaults& defaults = {},
                     const std::vector<ConfigText>& more = {}, std::span<const Error> unreadable = {}) {
  std::vector<ConfigText> configs = test::usual_configs();
  configs.push_back(config("select.yaml", kSelecting));
  configs.insert(configs.end(), more.begin(), more.end());
  return shown(resolve_desired_state(node_with(std::move(labels)), configs, defaults, unreadable));
}

DesiredDefaults by_policy() {
  DesiredDefaults out;
  out.policy = "mixed";
  return out;
}
DesiredDefaults by_workload(Workload workload) {
  DesiredDefaults out;
  out.workload = workload;
  return out;
}

constexpr const char* kWhole = "policy whole by nodeSelector of policy whole";

TEST(NodeSelector, NamesTheNodesThatHaveAllItsLabels) {
  EXPECT_EQ(selected({{"example.com/pool", "whole"}}), kWhole);
  EXPECT_EQ(selected({{"example.com/pool", "render"}, {"example.com/site", "a"}}),
            "policy render by nodeSelector of policy render");
  EXPECT_EQ(selected({{"example.com/pool", "render"}}), kNobody);
  EXPECT_EQ(selected({{"example.com/pool", "render"}, {"example.com/site", "b"}}), kNobody);
  EXPECT_EQ(selected({{"example.com/pool", ""}}), kNobody);
}

TEST(NodeSelector, CountsAfterTheNodesLabelsAndBeforeDefaults) {
  const auto with = [](const char* key, const char* value, const DesiredDefaults& defaults = {}) {
    return selected({{"example.com/pool", "whole"}, {key, value}}, defaults);
  };
  EXPECT_EQ(with(api::kPolicyLabel, "mixed"), "policy mixed by label gpu-ferry.io/policy=mixed");
  EXPECT_EQ(with(api::kOperandsLabel, "false"), kOff);
  EXPECT_EQ(with(api::kWorkloadLabel, "container"),
            "policy container by label nvidia.com/gpu.workload.config=container");
  EXPECT_EQ(with(policy::kVgpuConfigLabel, "render-mix"),
            "policy render-mix by label nvidia.com/vgpu.config=render-mix");
  EXPECT_EQ(with(policy::kVgpuConfigLabel, "render-mix", by_workload(Workload::vm_vgpu)),
            "policy render-mix by default workload vm-vgpu, label nvidia.com/vgpu.config=render-mix");
  EXPECT_EQ(with(policy::kVgpuConfigLabel, "render-mix", by_workload(Workload::container)), kWhole);
  EXPECT_EQ(with(api::kPolicyLabel, "", by_policy()), kWhole) << "an empty label counts as none";
  EXPECT_EQ(with("a", "b", by_workload(Workload::container)), kWhole);
  EXPECT_EQ(selected({}, by_policy()), "policy mixed by default policy mixed");
  EXPECT_EQ(selected({}, by_workload(Workload::container)), "policy container by default workload container");
}

TEST(NodeSelector, OfTwoPoliciesForOneNodeIsRefusedWithBothNames) {
  const std::string other =
      "version: v2\nnodeSelector: {all-vms: {example.com/site: a}}\npolicies:\n"
      "  all-vms: [{devices: all, mode: passthrough}]\n";
  const Labels both = {{"example.com/pool", "whole"}, {"example.com/site", "a"}};
  EXPECT_EQ(
      selected(both, by_policy(), {config("more.yaml", other)}),
      "invalid: nodeSelector: the labels of gpu-7 fit those of the policies 'whole' (select.yaml:7) and "
      "'all-vms' (more.yaml:4) | change one of the two, or choose one: kubectl label node gpu-7 "
      "gpu-ferry.io/policy=whole");
  Labels chosen = both;
  chosen[api::kPolicyLabel] = "all-vms";
  EXPECT_EQ(selected(chosen, by_policy(), {config("more.yaml", other)}),
            "policy all-vms by label gpu-ferry.io/policy=all-vms");
}

TEST(NodeSelector, OfOneNameInTwoFilesCountsOnceIfBothSayTheSame) {
  const Labels labels = {{"example.com/pool", "whole"}};
  EXPECT_EQ(selected(labels, {}, {config("copy.yaml", kSelecting)}), kWhole);
  std::string without(kSelecting);
  without.erase(without.find("  whole: {"), std::string_view("  whole: {example.com/pool: whole}\n").size());
  EXPECT_EQ(selected(labels, {}, {config("copy.yaml", without)}), kWhole) << "nodes are no part of a policy";
  std::string differs(kSelecting);
  differs.replace(differs.find("mode: passthrough"), 17, "mode: host");
  EXPECT_THAT(selected(labels, {}, {config("copy.yaml", differs)}),
              testing::StartsWith("invalid: nodeSelector of policy whole: 'whole' stands at select.yaml:7 "
                                  "and, saying something else, at copy.yaml:7"));
}

// A default would take the GPUs of a node whose own policy cannot be read just now.
TEST(NodeSelector, ThatCannotBeReadKeepsDefaultsFromTakingEffect) {
  const ConfigText selects =
      config("bad.yaml", "version: v2\nnodeSelector: {x: {a: b}}\npolicies:\n  x: 7\n");
  const ConfigText selects_none = config("bad.yaml", "version: v2\npolicies:\n  x: 7\n");
  const std::vector<Error> missing = {{.code = Errc::invalid_config, .message = "ConfigMap a: forbidden"}};
  EXPECT_THAT(
      selected({}, by_policy(), {selects}),
      testing::StartsWith("invalid: nodeSelector: this configuration may name the node: bad.yaml:4: "));
  EXPECT_EQ(selected({}, by_policy(), {selects_none}), "policy mixed by default policy mixed");
  EXPECT_EQ(selected({}, by_policy(), {}, missing),
            "invalid: nodeSelector: this configuration may name the node: ConfigMap a: forbidden");
  for (const auto& labels : {Labels{{api::kPolicyLabel, "mixed"}}, Labels{{"example.com/pool", "whole"}}})
    EXPECT_THAT(selected(labels, by_policy(), {selects}, missing), testing::StartsWith("policy "));
}

}  // namespace
}  // namespace ferry::agent
