// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gmock/gmock.h>

#include "kube/api_error.h"
#include "kubectl/cluster_verbs.h"
#include "kubectl/kubevirt_permits.h"
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
using testing::SizeIs;

constexpr const char* kSecret = "hunter2";
constexpr const char* kAddress = "10.1.2.3";

/// A value in each place where objects hold what is nobody's business.
json with_secrets(json object) {
  object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = kSecret;
  object["metadata"]["annotations"]["gpu-ferry.io/kata-error"] =
      std::string("get https://u:") + kSecret + "@" + kAddress + "/v2/: refused";
  // What clouds, installers and KubeVirt write there; and what somebody has put where ours stand.
  for (const char* const key :
       {"alpha.eksctl.io/instance-id", "rke.cattle.io/machine", "node.example/ip", "kubevirt.io/created-by",
        "kubernetes.io/hostname", "topology.ebs.csi.aws.com/zone", "nvidia.com/gpu.clique"})
    object["metadata"]["labels"][key] = kSecret;
  object["metadata"]["labels"]["feature.node.kubernetes.io/our-address"] = kAddress;
  object["spec"]["nodeSelector"] = {{"alpha.eksctl.io/instance-id", kSecret},
                                    {"kubernetes.io/arch", "amd64"}};
  object["metadata"]["managedFields"] = {kSecret};
  object["metadata"]["uid"] = kSecret;
  object["spec"]["volumes"] = {kSecret};
  object["spec"]["providerID"] = kSecret;
  object["status"]["addresses"] = {kSecret};
  object["status"]["podIP"] = kSecret;
  object["status"]["nodeInfo"] = {{"machineID", kSecret}, {"systemUUID", kSecret}, {"kernelVersion", "6.1"}};
  if (object["spec"].contains("containers")) {
    auto& container = object["spec"]["containers"][0];
    object["status"]["containerStatuses"][0]["lastState"] = {
        {"terminated", {{"message", kSecret}, {"exitCode", 3}}}};
    object["status"]["containerStatuses"][0]["state"] = {
        {"waiting",
         {{"reason", "ErrImagePull"}, {"message", std::string("get https://u:") + kSecret + "@r"}}}};
    container["env"] = {{{"name", "TOKEN"}, {"value", kSecret}}};
    if (!container.contains("command")) {
      container["command"] = {"/bin/program"};
      container["args"] = {std::string("--password=") + kSecret};
    } else {
      container["args"].push_back("--password");
      container["args"].push_back(kSecret);
    }
  }
  if (object["kind"] == "VirtualMachineInstance")
    object["status"]["migrationState"] = {
        {"completed", true}, {"targetNodeAddress", kAddress}, {"targetPod", kSecret}};
  if (object["kind"] == "VirtualMachineInstance")
    object["spec"]["volumes"] = {{{"cloudInitNoCloud", {{"userData", kSecret}}}}};
  return object;
}

class ClusterGather : public testing::Test, public KubeFixture {
 protected:
  Result<std::string> log(const kube::ObjectRef& pod, const kube::LogEnd& end) {
    const auto reply = outcome<kube::ApiReply>([&](auto done) {
      server.send({.path = must(kube::log_path(pod, end))}, {.ended = std::move(done)});
    });
    if (reply && reply->status == 200) return reply->body;
    if (!reply) return fail(reply.error());
    return fail(kube::error_of(*reply, {.verb = "get", .kind = pod.kind, .object = pod.text()}));
  }
  json gathered() { return gathered_all().document; }
  kubectl::Gathered gathered_all() {
    return must(kubectl::gather_cluster(
        [this](const kube::Selection& selection, const kube::ListRange& range) {
          return outcome<json>([&](auto done) { client.list(selection, range, std::move(done)); });
        },
        [this](const kube::ObjectRef& pod, const kube::LogEnd& end) { return log(pod, end); }, "gpu-system"));
  }
};

TEST_F(ClusterGather, HasWhatSupportNeedsAndNoSecret) {
  const auto& objects = composed_cluster("passthrough").objects;
  for (const auto* list : {&objects.nodes, &objects.pods, &objects.vmis})
    for (const json& object : *list) server.put(with_secrets(object));
  server.put(with_secrets(agent_pod("gpu-1", {"--config-map=policies"})));
  const std::string policies = "version: v2\npolicies: {a: [{devices: all, mode: host}]}\n";
  server.put(config_map("gpu-system", "policies",
                        policies + "# registry password: " + kSecret + ", at " + kAddress + "\n"));
  server.put(
      config_map("gpu-system", "other", std::string("policies: are kept elsewhere\npassword: ") + kSecret));
  server.put(config_map("gpu-system", "unrelated", std::string("password: ") + kSecret));
  server.logs["gpu-system/ferry-gpu-1/agent"] = std::string("said\npassword=") + kSecret + "\n";
  for (const json& pod : objects.pods)
    server.logs[pod["metadata"]["namespace"].get<std::string>() + "/" +
                pod["metadata"]["name"].get<std::string>() + "/main"] = kSecret;
  const json document = gathered();
  EXPECT_THAT(document.dump(), Not(HasSubstr(kSecret)));
  EXPECT_THAT(document.dump(), Not(HasSubstr(kAddress)));
  EXPECT_EQ(document["nodes"][0]["metadata"]["annotations"]["gpu-ferry.io/kata-error"],
            "get https://***@***/v2/: refused");
  const json& labels = document["nodes"][1]["metadata"]["labels"];
  EXPECT_EQ(labels["nvidia.com/gpu.workload.config"], "vm-passthrough");
  EXPECT_EQ(labels["feature.node.kubernetes.io/our-address"], "***");
  EXPECT_EQ(document["nodes"][1]["metadata"]["labels_left_out"], 7);
  for (const char* const list : {"pods", "vmis"})
    EXPECT_EQ(document[list][0]["spec"]["nodeSelector"], json::object({{"kubernetes.io/arch", "amd64"}}));
  EXPECT_EQ(document["pods"][0]["spec"]["nodeSelector_left_out"], 1);
  EXPECT_EQ(document["vmis"][0]["status"]["migrationState"], json::object({{"completed", true}}));
  ASSERT_THAT(document["logs"], SizeIs(1)) << "Ferry's own alone";
  EXPECT_EQ(document["logs"][0]["lines"], json::array({"said", "password=***"}));
  EXPECT_THAT(document["nodes"], SizeIs(2));
  EXPECT_EQ(document["nodes"][0]["status"]["nodeInfo"]["kernelVersion"], "6.1");
  EXPECT_THAT(document["pods"], SizeIs(3)) << "VMs' and Ferry's; none that has nothing to do with GPUs";
  EXPECT_THAT(document["vmis"], SizeIs(4));
  std::string args;
  for (const json& pod : document["pods"])
    for (const json& container : pod["spec"]["containers"]) args += container.value("args", json()).dump();
  EXPECT_THAT(args, HasSubstr("--config-map=policies"));
  EXPECT_THAT(args, HasSubstr(R"("--password","***")"));
  EXPECT_EQ(document["pods"][0]["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 3);
  EXPECT_EQ(document["pods"][0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"],
            "ErrImagePull");
  EXPECT_THAT(document["config_maps"], SizeIs(2));
  EXPECT_EQ(document["config_maps"][1]["data"]["config.yaml"],
            policies + "# registry password: ***, at ***\n");
  EXPECT_TRUE(document["config_maps"][0]["data"]["config.yaml"].contains("not_read"));
}

TEST_F(ClusterGather, TakesTheLabelsThatSupportNeedsAsTheyAre) {
  const json needed = {{"gpu-ferry.io/policy", "mixed"},
                       {"nvidia.com/gpu.product", "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"},
                       {"nvidia.com/cuda.driver-version.full", "580.159.04"},
                       {"feature.node.kubernetes.io/pci-0302_10de.present", "true"},
                       {"feature.node.kubernetes.io/gpu-ferry.io-generation", "blackwell"},
                       {"node-role.kubernetes.io/control-plane", ""},
                       {"node.kubernetes.io/instance-type", "p5.48xlarge"},
                       {"topology.kubernetes.io/zone", "eu-central-1a"},
                       {"kubernetes.io/arch", "amd64"},
                       {"katacontainers.io/kata-runtime", "true"},
                       {"kubevirt.io/schedulable", "true"},
                       {"kubevirt.io", "virt-launcher"},
                       {"app", "nvidia-device-plugin-daemonset"},
                       {"app.kubernetes.io/name", "ferry"},
                       {"helm.sh/chart", "ferry-0.1.0"}};
  server.put(gpu_node("n", needed, {}));
  const json document = gathered();
  const json& metadata = document["nodes"][0]["metadata"];
  EXPECT_EQ(metadata["labels"], needed);
  EXPECT_FALSE(metadata.contains("labels_left_out")) << metadata;
}

TEST_F(ClusterGather, TakesNoProgramForOursThatIsOnlyCalledAlike) {
  const std::string password = std::string("--password=") + kSecret;
  const auto with = [](const std::string& name, const json& container) {
    json pod = gpu_pod("shop", name, "gpu-1", {{"nvidia.com/pgpu", 1}});
    pod["spec"]["containers"][0].erase("command");
    pod["spec"]["containers"][0].update(container);
    return pod;
  };
  server.put(with("booking", {{"command", {"/usr/bin/ferry-booking"}}, {"args", {password}}}));
  server.put(
      with("of-the-image", {{"args", {std::string("--url=https://shop:") + kSecret + "@host/ferry"}}}));
  server.put(with("the-same", {{"command", {"/usr/bin/ferry"}}, {"args", {password}}}));
  server.logs["shop/the-same/main"] = "theirs";
  const kubectl::Gathered all = gathered_all();
  const json& document = all.document;
  EXPECT_THAT(document["pods"], SizeIs(3));
  EXPECT_THAT(document.dump(), Not(HasSubstr("--password")));
  EXPECT_THAT(document["logs"], IsEmpty());
  EXPECT_THAT(all.notes, Not(Contains(HasSubstr("Ferry runs in shop"))));
}

TEST_F(ClusterGather, GoesOnWithoutWhatItIsNotShown) {
  server.put(gpu_node("n", json::object(), {}));
  server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("/pods?") != std::string::npos) return ApiFault::status_of(403, "Forbidden");
    if (request.path.find("/kubevirts?") != std::string::npos) return ApiFault::status_of(404, "NotFound");
    return std::nullopt;
  };
  const json document = gathered();
  EXPECT_THAT(document["nodes"], SizeIs(1));
  EXPECT_FALSE(document.contains("pods"));
  EXPECT_THAT(document["notes"].get<std::vector<std::string>>(),
              ElementsAre(HasSubstr("pods: list Pod"), "kubevirts: the cluster does not know them"));
}

TEST_F(ClusterGather, SaysWhetherItHasAllThatCanBeHad) {
  server.put(gpu_node("n", json::object(), {}));
  EXPECT_TRUE(gathered_all().whole);
  int status = 403;
  server.script = [&](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("/pods?") == std::string::npos) return std::nullopt;
    return ApiFault::status_of(status, "Invalid");
  };
  EXPECT_TRUE(gathered_all().whole) << "what the role does not show";
  status = 422;
  const kubectl::Gathered parts = gathered_all();
  EXPECT_FALSE(parts.whole);
  EXPECT_THAT(parts.notes, ElementsAre(HasSubstr("pods: list Pod")));
  EXPECT_EQ(parts.document["notes"].size(), 1U);
}

TEST_F(ClusterGather, MasksItsNotes) {
  server.put(gpu_node("gpu-1", json::object(), {}));
  server.put(agent_pod("gpu-1", {}));
  server.script = [](const kube::ApiRequest& request) -> std::optional<ApiFault> {
    if (request.path.find("/log?") == std::string::npos) return std::nullopt;
    return ApiFault::status_of(
        403, "Forbidden", std::string("Get https://") + kAddress + ":10250/containerLogs?token=" + kSecret);
  };
  const kubectl::Gathered all = gathered_all();
  ASSERT_THAT(all.notes, Contains(HasSubstr("***:10250/containerLogs?***")));
  EXPECT_THAT(all.document.dump(), Not(HasSubstr(kAddress)));
  EXPECT_THAT(all.document.dump(), Not(HasSubstr(kSecret)));
}

TEST_F(ClusterGather, SaysWhereFerryIsIfNotWhereItLooked) {
  server.put(gpu_node("gpu-1", json::object(), {}));
  server.put(agent_pod("gpu-1", {}));
  EXPECT_THAT(gathered_all().notes, IsEmpty());
  auto pod = agent_pod("gpu-1", {});
  server.erase("/api/v1/namespaces/gpu-system/pods/ferry-gpu-1");
  pod["metadata"]["namespace"] = "ferry";
  pod["metadata"]["labels"]["helm.sh/chart"] = "ferry-0.1.0";
  server.put(pod);
  EXPECT_THAT(gathered_all().notes,
              ElementsAre(HasSubstr("of namespace gpu-system; Ferry runs in ferry: say -n ferry")));
}

TEST_F(ClusterGather, MasksSecretsInLogs) {
  auto node = gpu_node("n", json::object(), {});
  node["status"]["conditions"] = {{{"type", "Ready"}, {"message", std::string("token=") + kSecret}}};
  server.put(node);
  server.put({{"apiVersion", "v1"},
              {"kind", "Event"},
              {"metadata", {{"name", "e"}, {"namespace", "default"}}},
              {"involvedObject", {{"kind", "Node"}, {"name", "n"}}},
              {"message", std::string("pull of https://u:") + kSecret + "@r failed"}});
  auto pod = agent_pod("n", {});
  pod["status"]["message"] = std::string("Bearer ") + kSecret;
  server.put(pod);
  const json document = gathered();
  EXPECT_THAT(document.dump(), Not(HasSubstr(kSecret)));
  EXPECT_EQ(document["events"][0]["message"], "pull of https://***@r failed");
}

TEST_F(ClusterGather, TakesEventsOfNodesAndLeases) {
  server.put(gpu_node("n", json::object(), {}));
  server.put({{"apiVersion", "v1"},
              {"kind", "Event"},
              {"metadata", {{"name", "e"}, {"namespace", "default"}}},
              {"involvedObject", {{"kind", "Node"}, {"name", "n"}}},
              {"reason", "Blocked"}});
  server.put({{"apiVersion", "coordination.k8s.io/v1"},
              {"kind", "Lease"},
              {"metadata",
               {{"name", "ferry-rollout-0"},
                {"namespace", "gpu-system"},
                {"labels", {{"gpu-ferry.io/rollout-lease", "0"}}},
                {"annotations", {{"failed.gpu-ferry.io/abc", "n: why"}}}}},
              {"spec", {{"holderIdentity", "n"}}}});
  const json document = gathered();
  EXPECT_EQ(document["events"][0]["reason"], "Blocked");
  EXPECT_EQ(document["events"][0]["node"], "n");
  EXPECT_EQ(document["leases"][0]["spec"]["holderIdentity"], "n");
  EXPECT_THAT(document["leases"][0]["metadata"].dump(), HasSubstr("failed.gpu-ferry.io/abc"));
}

// --- The doctor
// ------------------------------------------------------------------------------------------------

/// "node-ready: pass"
std::vector<std::string> verdicts(const kubectl::ClusterObjects& objects,
                                  const std::optional<std::vector<json>>& kubevirts = std::vector<json>()) {
  std::vector<std::string> out;
  for (const Check& check : kubectl::cluster_checks(objects, kubevirts))
    out.push_back(check.id + ": " + std::string(text(check.verdict)));
  return out;
}

kubectl::ClusterObjects healthy() {
  kubectl::ClusterObjects out;
  out.nodes = {gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {{kWholeL40s, 1}})};
  out.pods = {agent_pod("n", {}), host_pod("n", "hostd"), host_pod("n", "plugin")};
  return out;
}

TEST(ClusterChecks, PassWhereAllIsWell) {
  EXPECT_THAT(verdicts(healthy()), ElementsAre("node-ready: pass", "ferry-agent: pass", "ferry-hostd: pass",
                                               "ferry-versions: pass", "node-state: pass", "one-owner: pass",
                                               "gpus-advertised: pass", "kubevirt-permits: pass"));
}

TEST(ClusterChecks, FindWhatIsNot) {
  auto objects = healthy();
  objects.nodes[0]["status"]["conditions"][0]["status"] = "False";
  EXPECT_THAT(verdicts(objects), Contains("node-ready: fail"));
  objects = healthy();
  objects.nodes[0]["spec"]["unschedulable"] = true;
  EXPECT_THAT(verdicts(objects), Contains("node-ready: warn"));
  objects.nodes[0]["metadata"]["annotations"]["gpu-ferry.io/cordoned"] = "true";
  EXPECT_THAT(verdicts(objects), Contains("node-ready: pass")) << "an uncordon would end the drain";
  objects = healthy();
  objects.pods[0]["status"]["containerStatuses"][0]["ready"] = false;
  EXPECT_THAT(verdicts(objects), Contains("ferry-agent: fail"));
  objects.pods.push_back(healthy().pods[0]);
  EXPECT_THAT(verdicts(objects), Contains("ferry-agent: pass")) << "one takes the place of another";
  objects = healthy();
  objects.pods.clear();
  EXPECT_THAT(verdicts(objects), Contains("ferry-agent: unknown")) << "labels outlive an agent";
  objects.nodes[0]["metadata"]["labels"].clear();
  EXPECT_THAT(verdicts(objects), Contains("ferry-agent: fail"));
  EXPECT_THAT(verdicts(objects), Contains("node-state: unknown"));
  objects = healthy();
  objects.nodes[0]["metadata"]["labels"]["gpu-ferry.io/state"] = "failed";
  EXPECT_THAT(verdicts(objects), Contains("node-state: fail"));
  objects.nodes[0]["metadata"]["labels"]["gpu-ferry.io/state"] = "blocked";
  EXPECT_THAT(verdicts(objects), Contains("node-state: fail")) << "a script takes 0 for ready";
  objects = healthy();
  objects.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.deploy.dra-driver"] = "false";
  EXPECT_THAT(verdicts(objects), Contains("one-owner: pass"));
  objects.nodes[0]["metadata"]["labels"]["nvidia.com/gpu.deploy.dra-driver"] = "true";
  EXPECT_THAT(verdicts(objects), Contains("one-owner: warn")) << "of the operator's GPUCluster";
  objects = healthy();
  objects.pods.push_back(
      {{"metadata",
        {{"name", "p"},
         {"namespace", "tenant"},
         {"ownerReferences", {{{"kind", "DaemonSet"}, {"name", "nvidia-vfio-manager"}, {"uid", "u"}}}}}},
       {"spec", {{"nodeName", "n"}}}});
  EXPECT_THAT(verdicts(objects), Contains("one-owner: warn")) << "a namespace that is not believed";
  objects = healthy();
  objects.nodes[0]["status"]["allocatable"][kWholeL40s] = "0";
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: warn"));
}

// A GPU's audio is Unhealthy while a pod has the GPU, and nothing is wrong with it.
TEST(ClusterChecks, PassWhereDevicesAreHeldWithTheirGroups) {
  constexpr const char* kAudio = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER";
  auto objects = healthy();
  objects.nodes = {
      gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {{kWholeL40s, 2}, {kAudio, 2}, {kEighthA40, 4}})};
  auto& allocatable = objects.nodes[0]["status"]["allocatable"];
  allocatable[kAudio] = "1";
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: warn")) << "no pod has a GPU";
  objects.pods.push_back(launcher("studio", "render", "n", {{kWholeL40s, 1}}));
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: pass"));
  allocatable[kAudio] = "0";
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: warn")) << "one pod cannot have two GPUs' audio";
  allocatable[kAudio] = "1";
  allocatable[kWholeL40s] = "1";
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: warn"))
      << "a GPU that a pod has stays allocatable";
  allocatable[kWholeL40s] = "2";
  allocatable[kEighthA40] = "3";
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: warn")) << "a vGPU has a group of its own";
}

TEST(ClusterChecks, WarnOfAGpuThatIsUnhealthyBesideAVmWithAnotherGpuAndItsAudio) {
  constexpr const char* kAudio = "nvidia.com/AD102_HIGH_DEFINITION_AUDIO_CONTROLLER";
  auto objects = healthy();
  objects.nodes = {gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {{kWholeL40s, 2}, {kAudio, 2}})};
  objects.pods.push_back(launcher("studio", "render", "n", {{kWholeL40s, 1}, {kAudio, 1}}));
  auto& allocatable = objects.nodes[0]["status"]["allocatable"];
  allocatable[kWholeL40s] = "1";
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: warn"));
  allocatable[kWholeL40s] = "2";
  allocatable[kAudio] = "1";
  EXPECT_THAT(verdicts(objects), Contains("gpus-advertised: warn"))
      << "the pod has the audio of its GPU itself";
}

std::string found_by(const kubectl::ClusterObjects& objects, const std::string& id) {
  for (const Check& check : kubectl::cluster_checks(objects, std::vector<json>()))
    if (check.id == id) return std::string(text(check.verdict)) + ": " + check.found;
  return {};
}

TEST(ClusterChecks, FindWhichDaemonSetIsMissing) {
  auto objects = healthy();
  objects.pods.resize(1);
  EXPECT_THAT(verdicts(objects), AllOf(Contains("ferry-agent: pass"), Contains("ferry-hostd: fail")));
  EXPECT_THAT(found_by(objects, "ferry-hostd"), HasSubstr("hostd and the plugin have none"));
  objects = healthy();
  objects.pods.erase(objects.pods.begin());
  EXPECT_THAT(verdicts(objects), AllOf(Contains("ferry-agent: warn"), Contains("ferry-hostd: pass")))
      << "the node shows what an agent has said last";
  objects.nodes[0]["metadata"]["labels"].clear();
  EXPECT_THAT(verdicts(objects), AllOf(Contains("ferry-agent: fail"), Contains("ferry-hostd: pass")));
  objects = healthy();
  objects.pods.pop_back();
  EXPECT_EQ(found_by(objects, "ferry-hostd"), "fail: no pod of this node runs `ferry plugin`");
  // The chart with hostd.enabled=false has no such pod.
  objects = healthy();
  objects.pods.erase(objects.pods.begin() + 1);
  EXPECT_EQ(found_by(objects, "ferry-hostd"), "unknown: the plugin runs; no pod of this node runs hostd");
  // An earlier chart has the plugin in hostd's pod, and the one before that the agent as well.
  objects = healthy();
  json& in_one = objects.pods[1]["spec"]["containers"];
  in_one.push_back(objects.pods[2]["spec"]["containers"][0]);
  objects.pods.pop_back();
  EXPECT_THAT(verdicts(objects), AllOf(Contains("ferry-agent: pass"), Contains("ferry-hostd: pass")));
  in_one.push_back(objects.pods[0]["spec"]["containers"][0]);
  objects.pods.erase(objects.pods.begin());
  EXPECT_THAT(verdicts(objects), AllOf(Contains("ferry-agent: pass"), Contains("ferry-hostd: pass")));
  objects.pods.clear();
  EXPECT_THAT(verdicts(objects), Contains("ferry-hostd: unknown"));
}

TEST(ClusterChecks, FindThePodOfHostdOrThePluginThatDoesNotRun) {
  for (const std::size_t number : {1, 2}) {
    auto objects = healthy();
    const std::string verb = number == 1 ? "hostd" : "plugin";
    objects.pods[number]["status"]["containerStatuses"][0]["ready"] = false;
    EXPECT_EQ(found_by(objects, "ferry-hostd"),
              "fail: pod gpu-system/ferry-" + verb + "-n does not run: " + verb);
    objects.pods.push_back(healthy().pods[number]);
    EXPECT_THAT(verdicts(objects), Contains("ferry-hostd: pass")) << "one takes the place of another";
    std::ranges::reverse(objects.pods);
    EXPECT_THAT(verdicts(objects), Contains("ferry-hostd: pass")) << "in any order";
  }
  // An upgrade looks so: the plugin's new pod waits for an image, and the earlier pod has both.
  auto objects = healthy();
  objects.pods[1]["spec"]["containers"].push_back(objects.pods[2]["spec"]["containers"][0]);
  objects.pods[2]["status"]["containerStatuses"][0]["ready"] = false;
  EXPECT_THAT(verdicts(objects), Contains("ferry-hostd: pass"));
}

TEST(ClusterChecks, NameTheLabelThatKeepsFerryOff) {
  auto objects = healthy();
  json& labels = objects.nodes[0]["metadata"]["labels"];
  labels["gpu-ferry.io/deploy"] = "false";
  EXPECT_THAT(verdicts(objects), AllOf(Contains("ferry-agent: pass"), Contains("node-state: pass")))
      << "its pods have not left yet";
  objects.pods.clear();
  for (const char* const state : {"ready", "idle"}) {
    labels["gpu-ferry.io/state"] = state;
    EXPECT_EQ(found_by(objects, "ferry-agent"),
              "fail: the node's label gpu-ferry.io/deploy=false keeps Ferry off");
    EXPECT_THAT(found_by(objects, "node-state"),
                HasSubstr("unknown: " + std::string(state) + ", by a label"));
  }
  labels["gpu-ferry.io/deploy"] = "true";
  EXPECT_THAT(verdicts(objects), AllOf(Contains("ferry-agent: unknown"), Contains("node-state: unknown")))
      << "the agent may be a service of the host";
  labels = {{"gpu-ferry.io/deploy", "false"}};
  EXPECT_THAT(found_by(objects, "ferry-agent"), HasSubstr("keeps Ferry off"));
}

// The operator sets its labels also for programs that are switched off.
TEST(ClusterChecks, CountTheOperatorsLabelsOnlyWhereTheAgentDoes) {
  auto objects = healthy();
  json& labels = objects.nodes[0]["metadata"]["labels"];
  labels["nvidia.com/gpu.deploy.vfio-manager"] = "true";
  const auto by_label = HasSubstr("warn: vfio-manager: label");
  EXPECT_THAT(found_by(objects, "one-owner"), HasSubstr("pass: the operator's labels name some of them"));
  labels["gpu-ferry.io/state"] = "standby";
  EXPECT_THAT(found_by(objects, "one-owner"), by_label);
  labels["nvidia.com/gpu.deploy.dra-driver"] = "true";
  EXPECT_THAT(found_by(objects, "one-owner"), AllOf(by_label, HasSubstr("DRA driver takes")));
  labels["gpu-ferry.io/state"] = "ready";
  EXPECT_THAT(found_by(objects, "one-owner"), AllOf(Not(by_label), HasSubstr("DRA driver takes")));
  labels["gpu-ferry.io/deploy"] = "false";
  EXPECT_THAT(found_by(objects, "one-owner"), AllOf(by_label, Not(HasSubstr("DRA driver takes"))))
      << "the state is of an agent that has left";
  labels.erase("gpu-ferry.io/state");
  EXPECT_THAT(found_by(objects, "one-owner"), by_label);
}

TEST(ClusterChecks, WarnOfAFaultOfKatasRuntimes) {
  auto objects = healthy();
  EXPECT_EQ(found_by(objects, "kata-runtimes"), "");
  objects.nodes[0]["metadata"]["annotations"]["gpu-ferry.io/kata-error"] = "kata-a: blocked: why";
  EXPECT_EQ(found_by(objects, "kata-runtimes"), "warn: kata-a: blocked: why");
}

std::string gpu_free(const kubectl::ClusterObjects& objects,
                     const json& waits = vmi("studio", "render", "", {kWholeL40s}, "Scheduling")) {
  std::string out;
  for (const Check& check : kubectl::vm_checks(waits, objects, std::vector<json>()))
    if (check.id == "gpu-free") out += std::string(text(check.verdict)) + ": " + check.found;
  return out;
}

TEST(VmChecks, CountADeviceOfTheVmsOwnPodAsAllocated) {
  auto objects = healthy();
  EXPECT_THAT(gpu_free(objects), HasSubstr("pass: node n has 1 free"));
  objects.pods.push_back(launcher("studio", "render", "n", {{kWholeL40s, 1}}));
  EXPECT_EQ(gpu_free(objects), std::string("pass: 1 x ") + kWholeL40s + " is allocated to it");
  objects.pods.back()["spec"].erase("nodeName");
  objects.pods.push_back(launcher("studio", "other", "n", {{kWholeL40s, 1}}));
  EXPECT_THAT(gpu_free(objects), HasSubstr("which no node has free")) << "its pod is on no node yet";
}

TEST(VmChecks, LookForAllDevicesOnOneNode) {
  json waits = vmi("studio", "render", "", {kWholeL40s, kEighthA40, "example.com/nic"}, "Pending");
  kubectl::ClusterObjects objects;
  objects.nodes = {gpu_node("n1", json::object(), {{kWholeL40s, 2}}),
                   gpu_node("n2", json::object(), {{kEighthA40, 2}})};
  const std::string l40s = std::string(" free of ") + kWholeL40s;
  const std::string a40 = std::string(" free of ") + kEighthA40;
  EXPECT_EQ(gpu_free(objects, waits), std::string("fail: it asks for 1 x ") + kWholeL40s + ", 1 x " +
                                          kEighthA40 + ", which no node has free together: n1 has 2" + l40s +
                                          ", 0" + a40 + "; n2 has 0" + l40s + ", 2" + a40);
  objects.nodes.push_back(gpu_node("n3", json::object(), {{kWholeL40s, 1}, {kEighthA40, 1}}));
  EXPECT_EQ(gpu_free(objects, waits), "pass: node n3 has 1" + l40s + ", 1" + a40);
  waits["spec"]["affinity"]["nodeAffinity"] = json::object();
  EXPECT_THAT(gpu_free(objects, waits), HasSubstr("; the VM's affinity is not judged"));
  objects.nodes[2]["spec"]["unschedulable"] = true;
  EXPECT_THAT(gpu_free(objects, waits),
              HasSubstr("; n3 has 1" + l40s + ", 1" + a40 + ", and takes no pods now"));
  objects.pods = {launcher("studio", "render", "n3", {{kWholeL40s, 1}, {kEighthA40, 1}})};
  EXPECT_EQ(gpu_free(objects, waits),
            std::string("pass: 1 x ") + kWholeL40s + ", 1 x " + kEighthA40 + " are allocated to it");
}

TEST(VmChecks, CountTheNodesOfTheNodeSelectorAlone) {
  json pinned = vmi("studio", "render", "", {kWholeL40s}, "Pending");
  EXPECT_EQ(kubectl::node_selector_of(pinned), "");
  pinned["spec"]["nodeSelector"] = {{"zone", "a"}, {"kubernetes.io/hostname", "n"}};
  EXPECT_EQ(kubectl::node_selector_of(pinned), "kubernetes.io/hostname=n,zone=a");
  EXPECT_THAT(gpu_free(healthy(), pinned), HasSubstr("pass: node n has 1 free"));
  EXPECT_EQ(gpu_free({}, pinned),
            "fail: no node has the labels of its nodeSelector: kubernetes.io/hostname=n,zone=a");
  kubectl::ClusterObjects other;
  other.nodes = {gpu_node("n", json::object(), {{kEighthA40, 1}})};
  EXPECT_EQ(gpu_free(other, pinned), std::string("fail: it asks for ") + kWholeL40s +
                                         ", which no node with kubernetes.io/hostname=n,zone=a advertises");
}

TEST(VmChecks, DoNotFailAVmWithClaims) {
  for (const char* const list : {"gpus", "hostDevices"}) {
    json by_claim = vmi("studio", "render", "", {}, "Scheduling");
    by_claim["spec"]["domain"]["devices"][list] = {{{"name", "g"}, {"claimName", "c"}, {"requestName", "r"}}};
    const auto checks = kubectl::vm_checks(by_claim, healthy(), std::vector<json>());
    EXPECT_EQ(checks.at(1).id, "vm-asks-for-gpus");
    EXPECT_EQ(checks.at(1).verdict, Verdict::unknown) << list;
  }
  const auto none = kubectl::vm_checks(vmi("studio", "render", "", {}), healthy(), std::vector<json>());
  EXPECT_EQ(none.at(1).verdict, Verdict::fail);
}

TEST(KubevirtPermits, NameTheObjectThatLacksAnEntry) {
  const json kubevirt = {{"metadata", {{"name", "main"}, {"namespace", "virt"}}},
                         {"spec", {{"configuration", {{"permittedHostDevices", json::object()}}}}}};
  const auto resources = kubectl::permitted_resources(kubectl::cluster_gpus(healthy()), kubevirt);
  EXPECT_THAT(kubectl::permitted_text(resources, kubevirt, {}),
              AllOf(HasSubstr("not listed"), HasSubstr("`kubectl edit kubevirt -n virt main`"),
                    HasSubstr("`kubectl ferry kubevirt-cr --check FILE --patch`")));
}

TEST(KubevirtPermits, WarnOfMediatedVgpusThatNothingLists) {
  const auto answer = [](const std::string& resource, const json& configuration) {
    kubectl::ClusterObjects objects = healthy();
    objects.nodes = {gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {{resource, 2}})};
    const json kubevirt = {{"spec", {{"configuration", configuration}}}};
    std::vector<Check> checks = kubectl::cluster_checks(objects, std::vector<json>{kubevirt});
    for (Check& check :
         kubectl::vm_checks(vmi("s", "v", "", {resource}, "Pending"), objects, std::vector<json>{kubevirt}))
      checks.push_back(std::move(check));
    std::string out;
    for (const Check& check : checks)
      if (check.id == "kubevirt-permits") out += std::string(text(check.verdict)) + " ";
    const auto resources = kubectl::permitted_resources(kubectl::cluster_gpus(objects), kubevirt);
    const bool noted = kubectl::permitted_text(resources, kubevirt, {}).find("note: ") != std::string::npos;
    return out + (noted ? "note" : "");
  };
  const json gate = {{"featureGates", json::array({"DisableMDEVConfiguration"})}};
  const json on = {{"enabled", true}};
  const json off = {{"enabled", false}};
  EXPECT_EQ(answer(kEighthA40, json::object()), "warn warn note");
  EXPECT_EQ(answer(kEighthA40, {{"mediatedDevicesConfiguration", off}}), "pass pass ");
  EXPECT_EQ(answer(kEighthA40, {{"developerConfiguration", gate}}), "pass pass ");
  EXPECT_EQ(answer(kEighthA40, {{"developerConfiguration", gate}, {"mediatedDevicesConfiguration", on}}),
            "warn warn note");
  EXPECT_EQ(answer(kEighthA40, {{"permittedHostDevices", json::object()}}), "warn fail ");
  EXPECT_EQ(answer(kWholeL40s, json::object()), "pass pass ");
}

TEST(ClusterChecks, FindTwoVersionsSideBySide) {
  auto objects = healthy();
  for (json& pod : objects.pods) pod["spec"]["containers"][0]["image"] = "r/ferry:2";
  EXPECT_EQ(found_by(objects, "ferry-versions"), "pass: all run r/ferry:2");
  objects.pods[0]["spec"]["containers"][0]["image"] = "r/ferry:1";
  EXPECT_EQ(found_by(objects, "ferry-versions"),
            "warn: images differ: r/ferry:1: agent; r/ferry:2: hostd, plugin");
  objects.pods.clear();
  EXPECT_THAT(verdicts(objects), Contains("ferry-versions: unknown"));
}

TEST(ClusterChecks, KnowWhatKubevirtPermits) {
  EXPECT_THAT(verdicts(healthy(), std::nullopt), Contains("kubevirt-permits: unknown"));
  json kubevirt = {{"spec", {{"configuration", json::object()}}}};
  EXPECT_THAT(verdicts(healthy(), std::vector<json>{kubevirt}), Contains("kubevirt-permits: pass"))
      << "without a list everything is permitted";
  auto& permitted = kubevirt["spec"]["configuration"]["permittedHostDevices"];
  permitted["pciHostDevices"] = json::array();
  EXPECT_THAT(verdicts(healthy(), std::vector<json>{kubevirt}), Contains("kubevirt-permits: warn"));
  permitted["pciHostDevices"] = json::array({{{"resourceName", kWholeL40s}}});
  EXPECT_THAT(verdicts(healthy(), std::vector<json>{kubevirt}), Contains("kubevirt-permits: warn"))
      << "KubeVirt would offer it, too";
  permitted["pciHostDevices"][0]["externalResourceProvider"] = true;
  EXPECT_THAT(verdicts(healthy(), std::vector<json>{kubevirt}), Contains("kubevirt-permits: pass"));
  permitted["mediatedDevices"] =
      json::array({{{"resourceName", kWholeL40s}, {"externalResourceProvider", true}}});
  EXPECT_THAT(verdicts(healthy(), std::vector<json>{kubevirt}), Contains("kubevirt-permits: warn"))
      << "KubeVirt would let VMs with the PCI function migrate";
  permitted.erase("mediatedDevices");
  auto of_containers = healthy();
  of_containers.nodes[0]["status"]["capacity"]["nvidia.com/gpu"] = "1";
  of_containers.nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] = "1";
  EXPECT_THAT(verdicts(of_containers, std::vector<json>{kubevirt}), Contains("kubevirt-permits: pass"));
}

}  // namespace
