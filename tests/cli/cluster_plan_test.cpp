// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kubectl/agent_pod.h"
#include "kubectl/cluster_verbs.h"
#include "tests/cli/composed_clusters.h"
#include "tests/kube/kube_fixture.h"
#include "tests/support/must.h"

namespace {

using namespace ferry;
using namespace ferry::test;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

constexpr const char* kTwoPolicies =
    "version: v2\n"
    "policies:\n"
    "  mixed:\n"
    "  - {devices: all, mode: passthrough}\n"
    "  - {devices: [0], mode: vgpu, vgpu-devices: {L40S-12Q: 4}}\n"
    "  also-mixed:\n"
    "  - {devices: all, mode: passthrough}\n"
    "  - {devices: [0], mode: vgpu, vgpu-devices: {L40S-12Q: 4}}\n"
    "  whole: [{devices: all, mode: passthrough}]\n";

class ClusterPlan : public testing::Test, public KubeFixture {
 protected:
  ClusterPlan() {
    server.put(gpu_node("gpu-3", {{"gpu-ferry.io/policy", "mixed"}, {"gpu-ferry.io/state", "ready"}},
                        {{kWholeL40s, 2}}));
    server.put(agent_pod("gpu-3", {"--host-root=/host", "--config-map=policies", "--log-level=info"}));
    server.put(config_map("gpu-system", "policies", kTwoPolicies));
    server.put(launcher("studio", "render-a", "gpu-3", {{kWholeL40s, 1}}));
  }
  Result<kubectl::LabelPlan> plan(const std::vector<std::string>& words, const std::string& node = "gpu-3") {
    const auto changes = must(kubectl::parse_label_changes(words));
    return kubectl::read_label_plan(
        [this](const kube::Selection& selection, const kube::ListRange& range) {
          return outcome<json>([&](auto done) { client.list(selection, range, std::move(done)); });
        },
        node, changes, assumed);
  }
  kubectl::AssumedAgent assumed{.space = "elsewhere", .config_maps = {"ferry"}};
  kubectl::LabelPlan planned(const std::vector<std::string>& words) { return must(plan(words)); }
};

TEST_F(ClusterPlan, SaysWhatWouldBeAskedForAndWhoIsInTheWay) {
  const kubectl::LabelPlan change = planned({"gpu-ferry.io/policy=whole"});
  EXPECT_EQ(change.effect, kubectl::LabelPlan::Effect::change);
  EXPECT_EQ(kubectl::plan_status(change), ExitStatus::done);
  EXPECT_EQ(
      kubectl::plan_text(change, 100),
      "node gpu-3\n"
      "LABEL                CURRENT  DESIRED\n"
      "gpu-ferry.io/policy  mixed    whole\n"
      "now asked for: policy mixed (label gpu-ferry.io/policy=mixed)\n"
      "then asked for: policy whole (label gpu-ferry.io/policy=whole)\n"
      "hostd would be asked for this, when the node gets a rollout lease; GPUs in their desired mode are\n"
      "not touched, and a GPU in use is blocked until its user ends:\n"
      "version: v2\n"
      "policies:\n"
      "  whole:\n"
      "  - devices: all\n"
      "    mode: passthrough\n"
      "in use: 1 x nvidia.com/AD102GL_L40S by VM studio/render-a\n"
      "note: only the node knows the mode of each GPU and its other users: `ferry apply --dry-run -f FILE\n"
      "-c NAME` there prints the writes\n");
  const json document = kubectl::plan_document(change);
  EXPECT_EQ(document["effect"], "change");
  EXPECT_EQ(document["labels"],
            (json::array({{{"name", "gpu-ferry.io/policy"}, {"now", "mixed"}, {"then", "whole"}}})));
  EXPECT_EQ(document["in_use"][0]["user"], "VM studio/render-a");
  EXPECT_EQ(server.count("GET"), server.seen().size()) << "nothing is written";
}

TEST_F(ClusterPlan, TakesTheRemovalOfTheAgentsOwnLabels) {
  EXPECT_EQ(planned({"gpu-ferry.io/state-", "gpu-ferry.io/kata.qemu-"}).effect,
            kubectl::LabelPlan::Effect::same);
  EXPECT_EQ(planned({"gpu-ferry.io/policy=whole", "gpu-ferry.io/state-"}).effect,
            kubectl::LabelPlan::Effect::change);
}

TEST_F(ClusterPlan, KnowsThatAnotherNameIsNoChange) {
  EXPECT_EQ(planned({"gpu-ferry.io/policy=also-mixed"}).effect, kubectl::LabelPlan::Effect::same);
  EXPECT_EQ(planned({"gpu-ferry.io/policy=mixed"}).effect, kubectl::LabelPlan::Effect::same);
  EXPECT_THAT(planned({"gpu-ferry.io/policy=mixed"}).labels, IsEmpty()) << "it is so already";
  EXPECT_EQ(planned({}).effect, kubectl::LabelPlan::Effect::same);
}

TEST_F(ClusterPlan, SaysWhatCannotBe) {
  const kubectl::LabelPlan wrong = planned({"gpu-ferry.io/policy=hole"});
  EXPECT_EQ(wrong.effect, kubectl::LabelPlan::Effect::invalid);
  EXPECT_EQ(kubectl::plan_status(wrong), ExitStatus::usage);
  EXPECT_THAT(kubectl::plan_text(wrong, {}), AllOf(HasSubstr("did you mean 'whole'?"),
                                                   HasSubstr("would be failed"), Not(HasSubstr("in use"))));
  EXPECT_EQ(kubectl::plan_document(wrong)["policy"], json());
}

TEST_F(ClusterPlan, KnowsTheAgentsDefaultsByItsPod) {
  const kubectl::LabelPlan left = planned({"gpu-ferry.io/policy-"});
  EXPECT_EQ(left.effect, kubectl::LabelPlan::Effect::left_as_is);
  EXPECT_THAT(left.labels, ElementsAre(Pair("gpu-ferry.io/policy", std::nullopt)));
  server.put(agent_pod("gpu-3", {"--config-map=policies", "--default-policy=whole"}));
  const kubectl::LabelPlan by_default = planned({"gpu-ferry.io/policy-"});
  EXPECT_EQ(by_default.effect, kubectl::LabelPlan::Effect::change);
  EXPECT_EQ(by_default.then.desired_policy.source, "default policy whole");
}

TEST_F(ClusterPlan, SaysWhatItAssumesWithoutAPod) {
  server.put(gpu_node("gpu-9", {{"gpu-ferry.io/policy", "mixed"}}, {}));
  server.put(config_map("elsewhere", "ferry", kTwoPolicies));
  const auto by_words = plan({"gpu-ferry.io/policy=whole"}, "gpu-9");
  ASSERT_TRUE(by_words) << message_of(by_words);
  EXPECT_EQ(by_words->effect, kubectl::LabelPlan::Effect::change);
  EXPECT_THAT(by_words->notes, Contains(HasSubstr("no pod on this node runs ferry-agent")));
}

TEST_F(ClusterPlan, TakesTheAgentOfAnotherNodeForTheOneThatIsMissing) {
  server.put(gpu_node("gpu-9", {{"gpu-ferry.io/policy", "mixed"}}, {}));
  json agent = agent_pod("gpu-3", {"--config-map=policies"});
  agent["metadata"]["labels"]["app.kubernetes.io/component"] = "agent";
  server.put(agent);
  assumed = {};
  const auto like_gpu_3 = plan({"gpu-ferry.io/policy=whole"}, "gpu-9");
  ASSERT_TRUE(like_gpu_3) << message_of(like_gpu_3);
  EXPECT_EQ(like_gpu_3->effect, kubectl::LabelPlan::Effect::change);
  EXPECT_THAT(like_gpu_3->notes,
              Contains(HasSubstr("ConfigMap policies in namespace gpu-system, as the agent "
                                 "on node gpu-3")));
}

TEST_F(ClusterPlan, LooksForTheConfigMapsOfTheChartWhereNoAgentRuns) {
  server.put(gpu_node("gpu-9", {}, {}));
  server.put(config_map("ferry", "ferry-policies", kTwoPolicies));
  assumed = {};
  const auto by_chart = plan({"gpu-ferry.io/policy=whole"}, "gpu-9");
  ASSERT_TRUE(by_chart) << message_of(by_chart);
  EXPECT_EQ(by_chart->effect, kubectl::LabelPlan::Effect::change);
  EXPECT_THAT(by_chart->notes,
              AllOf(Contains(HasSubstr("ferry-policies, ferry-vgpu-profiles in namespace ferry")),
                    Contains("there is no ConfigMap ferry/ferry-vgpu-profiles")));
}

TEST_F(ClusterPlan, IsOnStandbyWhereNvidiasProgramsServeTheNode) {
  auto owner = gpu_pod("gpu-operator", "nvidia-vfio-manager-x7k2p", "gpu-3", {});
  owner["metadata"]["ownerReferences"] = {{{"kind", "DaemonSet"}, {"name", "nvidia-vfio-manager"}}};
  server.put(owner);
  const kubectl::LabelPlan back = planned({"gpu-ferry.io/policy=whole"});
  EXPECT_EQ(back.effect, kubectl::LabelPlan::Effect::standby);
  EXPECT_EQ(kubectl::plan_status(back), ExitStatus::refused);
  EXPECT_THAT(kubectl::plan_text(back, {}), HasSubstr("nvidia-vfio-manager-x7k2p"));
}

TEST_F(ClusterPlan, TakesALabelAloneForANote) {
  server.edit("/api/v1/nodes/gpu-3", labels("nvidia.com/gpu.deploy.vfio-manager", "true"));
  const kubectl::LabelPlan noted = planned({"gpu-ferry.io/policy=whole"});
  EXPECT_EQ(noted.effect, kubectl::LabelPlan::Effect::change);
  EXPECT_THAT(noted.notes, Contains(HasSubstr("where the DaemonSet of that label exists")));
}

TEST_F(ClusterPlan, KnowsTheLabelThatKeepsFerryOff) {
  using Effect = kubectl::LabelPlan::Effect;
  const kubectl::LabelPlan away = planned({"gpu-ferry.io/deploy=false", "gpu-ferry.io/policy=whole"});
  EXPECT_EQ(away.effect, Effect::left_as_is);
  EXPECT_THAT(away.notes, ElementsAre(HasSubstr("Ferry's pods leave the node")));
  EXPECT_THAT(kubectl::plan_text(away, {}),
              HasSubstr("then asked for: nothing: the label gpu-ferry.io/deploy=false keeps Ferry off\n"));
  EXPECT_EQ(planned({"gpu-ferry.io/deploy=false", "gpu-ferry.io/policy-"}).effect, Effect::left_as_is);
  EXPECT_EQ(planned({"gpu-ferry.io/deploy=true"}).effect, Effect::same) << "any other word lets Ferry in";

  server.edit("/api/v1/nodes/gpu-3", labels("gpu-ferry.io/deploy", "false"));
  EXPECT_EQ(planned({"gpu-ferry.io/policy=whole"}).effect, Effect::same) << "it is off before and after";
  EXPECT_EQ(planned({"gpu-ferry.io/policy=hole"}).effect, Effect::same);
  EXPECT_EQ(planned({"gpu-ferry.io/deploy-", "gpu-ferry.io/policy=hole"}).effect, Effect::invalid);
  const kubectl::LabelPlan back = planned({"gpu-ferry.io/deploy-"});
  EXPECT_EQ(back.effect, Effect::change);
  EXPECT_THAT(back.notes, ElementsAre(HasSubstr("Ferry's pods come to the node")));
  EXPECT_THAT(kubectl::plan_text(back, {}),
              AllOf(HasSubstr("policies:\n  mixed:"), HasSubstr("in use: 1 x")));
  const kubectl::LabelPlan idle = planned({"gpu-ferry.io/deploy-", "gpu-ferry.io/policy-"});
  EXPECT_EQ(idle.effect, Effect::same);
  EXPECT_THAT(idle.notes, ElementsAre(HasSubstr("Ferry's pods come to the node")));
}

TEST_F(ClusterPlan, SaysWhyNoPodIsOnANodeThatKeepsFerryOff) {
  server.put(gpu_node("gpu-9", {{"gpu-ferry.io/policy", "mixed"}, {"gpu-ferry.io/deploy", "false"}}, {}));
  server.put(config_map("elsewhere", "ferry", kTwoPolicies));
  const auto back = plan({"gpu-ferry.io/deploy-"}, "gpu-9");
  ASSERT_TRUE(back) << message_of(back);
  EXPECT_EQ(back->effect, kubectl::LabelPlan::Effect::change);
  EXPECT_THAT(back->notes, Contains(HasSubstr("gpu-ferry.io/deploy=false keeps it off")));
}

TEST_F(ClusterPlan, IsNoneOfANodeThatIsNotThere) {
  EXPECT_EQ(code_of(plan({}, "gpu-33")), Errc::not_found);
}

TEST_F(ClusterPlan, SaysWhichConfigurationItIsNotShown) {
  server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("configmaps") == std::string::npos) return std::nullopt;
    return ApiFault::status_of(403, "Forbidden");
  };
  const kubectl::LabelPlan blind = planned({"gpu-ferry.io/policy=whole"});
  EXPECT_EQ(blind.effect, kubectl::LabelPlan::Effect::invalid);
  EXPECT_THAT(kubectl::plan_text(blind, {}), HasSubstr("403"));
}

TEST(LabelChangesOfWords, AreThoseOfKubectl) {
  EXPECT_THAT(must(kubectl::parse_label_changes({"a=b", "example.com/c-", "d="})),
              ElementsAre(Pair("a", "b"), Pair("d", ""), Pair("example.com/c", std::nullopt)));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"a"},
                                             {"-"},
                                             {"=b"},
                                             {"a=b c"},
                                             {"a=-b"},
                                             {"a=b", "a-"},
                                             {"a=" + std::string(64, 'x')},
                                             {"a/=b"},
                                             {" /x=1"},
                                             {"/x=1"},
                                             {"A.com/x=1"},
                                             {"a/b/c=1"},
                                             {"gpu-ferry.io/polcy=x"},
                                             {"gpu-ferry.io/polcy-"},
                                             {"gpu-ferry.io/state=ready"},
                                             {"nvidia.com/gpu.workload.config=vm-pass"}})
    EXPECT_EQ(code_of(kubectl::parse_label_changes(words)), Errc::usage) << words.front();
}

TEST(LabelChangesOfWords, NameWhatWasMeant) {
  EXPECT_THAT(message_of(kubectl::parse_label_changes({"gpu-ferry.io/polcy=x"})),
              HasSubstr("did you mean 'gpu-ferry.io/policy'?"));
  EXPECT_THAT(message_of(kubectl::parse_label_changes({"nvidia.com/gpu.workload.config=vm-pass"})),
              HasSubstr("there is no workload 'vm-pass'"));
}

TEST(AgentPod, IsKnownByItsProgram) {
  const auto options =
      kubectl::agent_options_in(agent_pod("n", {"--host-root=/host", "--drain", "--config-map=a"}));
  ASSERT_TRUE(options);
  EXPECT_TRUE(options->drain);
  EXPECT_THAT(options->config_maps, ElementsAre("a"));
  EXPECT_EQ(options->space, "gpu-system");
  EXPECT_EQ(kubectl::agent_options_in(agent_pod("n", {"--namespace=x"}))->space, "x");
  auto as_verb = agent_pod("n", {"agent", "--drain"});
  as_verb["spec"]["containers"][0]["command"] = {"/usr/bin/ferry"};
  EXPECT_TRUE(kubectl::agent_options_in(as_verb));
  auto other = agent_pod("n", {"agent"});
  other["spec"]["containers"][0]["command"] = {"/bin/other"};
  EXPECT_FALSE(kubectl::agent_options_in(other));
  EXPECT_FALSE(kubectl::agent_options_in(agent_pod("n", {"--max-unavailable=many"}))) << "it cannot start";
  EXPECT_FALSE(kubectl::agent_options_in(json()));
}

}  // namespace
