// SPDX-License-Identifier: Apache-2.0
#include "kubectl/cluster_facts.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kube/api_error.h"
#include "kubectl/cluster_verbs.h"
#include "kubectl/kubevirt_permits.h"
#include "tests/cli/composed_clusters.h"

namespace ferry::cli {
namespace {

using nlohmann::json;
using test::gpu_node;
using test::gpu_pod;
using test::kEighthA40;
using test::kWholeL40s;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;
using testing::StartsWith;

kubectl::ClusterObjects one_node(const test::Quantities& capacity, std::vector<json> pods) {
  kubectl::ClusterObjects out;
  out.nodes = {gpu_node("n", json::object(), capacity)};
  out.pods = std::move(pods);
  return out;
}

json container(const test::Quantities& asked) {
  return {{"resources", {{"limits", test::quantities(asked)}}}};
}

TEST(ClusterFacts, CountsAsTheSchedulerDoes) {
  auto pod = gpu_pod("a", "p", "n", {{kWholeL40s, 1}});
  pod["spec"]["containers"].push_back(container({{kWholeL40s, 1}}));
  // Runs before the others, and what it had is used again.
  pod["spec"]["initContainers"] = json::array({container({{kWholeL40s, 2}})});
  EXPECT_EQ(
      kubectl::cluster_gpus(one_node({{kWholeL40s, 8}}, {pod})).nodes.at(0).resources.at(kWholeL40s).used,
      2U);
  pod["spec"]["initContainers"].push_back(container({{kWholeL40s, 3}}));
  EXPECT_EQ(
      kubectl::cluster_gpus(one_node({{kWholeL40s, 8}}, {pod})).nodes.at(0).resources.at(kWholeL40s).used,
      3U);
  // One that stays counts beside all that come after it.
  auto stays = container({{kWholeL40s, 1}});
  stays["restartPolicy"] = "Always";
  pod["spec"]["initContainers"] = {stays, container({{kWholeL40s, 3}})};
  EXPECT_EQ(
      kubectl::cluster_gpus(one_node({{kWholeL40s, 8}}, {pod})).nodes.at(0).resources.at(kWholeL40s).used,
      4U);
}

TEST(ClusterFacts, CountsNobodyWhoHasEndedOrIsElsewhere) {
  auto ended = gpu_pod("a", "ended", "n", {{kWholeL40s, 1}});
  ended["status"]["phase"] = "Succeeded";
  auto pending = gpu_pod("a", "pending", "", {{kWholeL40s, 1}});
  pending["spec"].erase("nodeName");
  const auto cluster = kubectl::cluster_gpus(
      one_node({{kWholeL40s, 4}}, {ended, pending, gpu_pod("a", "elsewhere", "m", {{kWholeL40s, 1}})}));
  EXPECT_EQ(cluster.nodes.at(0).resources.at(kWholeL40s).used, 0U);
  EXPECT_THAT(cluster.users_of("n", kWholeL40s), IsEmpty());
  EXPECT_THAT(cluster.users, SizeIs(2)) << "who waits for one is shown";
}

TEST(ClusterFacts, ShowsNodesThatHaveToDoWithGpus) {
  kubectl::ClusterObjects objects;
  objects.nodes = {gpu_node("asked", {{"gpu-ferry.io/policy", "x"}}, {}),
                   gpu_node("has-some", json::object(), {{kWholeL40s, 1}}),
                   gpu_node("not", {{"nvidia.com/gpu.present", "false"}}, {}),
                   gpu_node("plain", json::object(), {})};
  const auto names = [](const kubectl::ClusterGpus& cluster) {
    std::vector<std::string> out;
    out.reserve(cluster.nodes.size());
    for (const auto& node : cluster.nodes) out.push_back(node.name);
    return out;
  };
  kubectl::ClusterGpus cluster = kubectl::cluster_gpus(objects);
  EXPECT_THAT(names(cluster), SizeIs(4));
  kubectl::drop_nodes_without_gpus(cluster);
  EXPECT_THAT(names(cluster), ElementsAre("asked", "has-some"));
}

// The server records when the agent last wrote any label or annotation, and not since when a state lasts.
TEST(ClusterFacts, ShowsWhenTheAgentLastChangedTheNode) {
  kubectl::ClusterObjects objects;
  objects.nodes = {gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {{kWholeL40s, 1}})};
  json manager = {{"time", "2026-11-27T20:00:00Z"}};
  manager["fieldsV1"]["f:metadata"]["f:labels"]["f:gpu-ferry.io/state"] = json::object();
  objects.nodes[0]["metadata"]["managedFields"] = json::array({manager});
  const auto cluster = kubectl::cluster_gpus(objects);
  const auto& node = cluster.nodes.at(0);
  ASSERT_TRUE(node.last_changed);
  EXPECT_EQ(kubectl::node_document(cluster, node)["last_changed"], node.last_changed.value_or(0));
  const std::int64_t now = node.last_changed.value_or(0) + std::int64_t{12} * 60;
  EXPECT_THAT(kubectl::node_text(cluster, node, {}, now),
              HasSubstr("state: ready\nlast changed: 12m ago by the agent\n"));
  EXPECT_THAT(kubectl::list_text(cluster, {}, now), AllOf(HasSubstr("CHANGED"), HasSubstr("12m")));
  EXPECT_THAT(kubectl::list_text(cluster, {}), Not(HasSubstr("CHANGED")));
}

TEST(ClusterFacts, NameTheCommandThatShowsEachGpu) {
  kubectl::ClusterObjects objects = one_node({{kWholeL40s, 1}}, {test::agent_pod("n", {})});
  const auto command = [&objects] {
    const auto cluster = kubectl::cluster_gpus(objects);
    const json document = kubectl::node_document(cluster, cluster.nodes.at(0));
    EXPECT_EQ(kubectl::node_text(cluster, cluster.nodes.at(0), {}).find("each GPU: ") == std::string::npos,
              document["status_command"].is_null());
    return document["status_command"].is_null() ? "" : document["status_command"].get<std::string>();
  };
  EXPECT_THAT(command(), IsEmpty());
  objects.pods.push_back(test::host_pod("n", "hostd"));
  EXPECT_EQ(command(), "kubectl -n gpu-system exec ferry-hostd-n -c hostd -- ferry --host-root=/host status");
  json& words = objects.pods[1]["spec"]["containers"][0]["args"];
  words = {"--host-root", "/host", "hostd"};
  EXPECT_THAT(command(), HasSubstr("-- ferry --host-root=/host status"));
  words = {"--host-root=/; reboot", "hostd"};
  EXPECT_THAT(command(), HasSubstr("-- ferry status"));
  objects.pods[1]["status"]["phase"] = "Pending";
  EXPECT_THAT(command(), IsEmpty());
}

TEST(ClusterFacts, NameNoCommandOfATenantsPod) {
  kubectl::ClusterObjects objects = one_node({{kWholeL40s, 1}}, {test::host_pod("n", "hostd")});
  const auto command = [&objects] { return kubectl::cluster_gpus(objects).nodes.at(0).status_command; };
  json& labels = objects.pods[0]["metadata"]["labels"];
  labels = {{"app.kubernetes.io/name", "gpus"}, {"helm.sh/chart", "ferry-0.1.0"}};
  EXPECT_THAT(command(), Not(IsEmpty())) << "an installer may change the other label";
  labels = {{"app.kubernetes.io/name", "game"}, {"helm.sh/chart", "game-0.1.0"}};
  EXPECT_THAT(command(), IsEmpty());
  objects.pods = {test::host_pod("n", "hostd"), test::host_pod("n", "hostd")};
  EXPECT_THAT(command(), Not(IsEmpty())) << "an old pod and a new one of the same installation";
  objects.pods[1]["metadata"]["namespace"] = "tenant";
  EXPECT_THAT(command(), IsEmpty());
}

TEST(ClusterFacts, LeaveTheCommandThatShowsEachGpuOnOneLine) {
  const auto cluster = kubectl::cluster_gpus(one_node({{kWholeL40s, 1}}, {test::host_pod("n", "hostd")}));
  EXPECT_THAT(kubectl::node_text(cluster, cluster.nodes.at(0), 80),
              HasSubstr("\neach GPU: kubectl -n gpu-system exec ferry-hostd-n -c hostd -- "
                        "ferry --host-root=/host status\n"));
}

TEST(ClusterFacts, KnowsAVmByItsPodsOwner) {
  const auto cluster = kubectl::cluster_gpus(
      one_node({{kWholeL40s, 4}}, {test::launcher("s", "render", "n", {{kWholeL40s, 2}})}));
  ASSERT_THAT(cluster.users, SizeIs(1));
  EXPECT_EQ(cluster.users[0].kind, kubectl::GpuUser::Kind::vm);
  EXPECT_EQ(cluster.users[0].text(), "VM s/render");
  EXPECT_THAT(cluster.users[0].resources, ElementsAre(Pair(kWholeL40s, 2U)));
}

TEST(ClusterFacts, KnowsKatasPodsByTheirRuntimeClass) {
  const auto kind = [](const json& labels, const std::string& runtime_class) {
    kubectl::ClusterObjects objects;
    objects.nodes = {gpu_node("n", labels, {{kWholeL40s, 1}})};
    objects.pods = {test::kata_pod("a", "p", "n", {{kWholeL40s, 1}}, runtime_class)};
    return kubectl::cluster_gpus(objects).users.at(0).kind;
  };
  EXPECT_EQ(kind(json::object(), "kata-qemu-nvidia-gpu"), kubectl::GpuUser::Kind::kata);
  EXPECT_EQ(kind(json::object(), "secure"), kubectl::GpuUser::Kind::pod);
  EXPECT_EQ(kind({{"gpu-ferry.io/kata.secure", "ready"}}, "secure"), kubectl::GpuUser::Kind::kata);
  EXPECT_EQ(kind(json::object(), "nvidia"), kubectl::GpuUser::Kind::pod);
}

TEST(ClusterFacts, CountsAVmOnce) {
  kubectl::ClusterObjects objects;
  objects.pods = {test::launcher("s", "running", "n", {{kWholeL40s, 1}})};
  objects.vmis = {test::vmi("s", "running", "n", {kWholeL40s}),
                  test::vmi("s", "waits", "", {kWholeL40s}, "Pending"),
                  test::vmi("s", "ended", "n", {kWholeL40s}, "Succeeded"),
                  test::vmi("other", "running", "", {kWholeL40s}, "Pending")};
  const auto cluster = kubectl::cluster_gpus(objects);
  std::vector<std::string> names;
  names.reserve(cluster.users.size());
  for (const auto& user : cluster.users) names.push_back(user.text() + " " + user.phase + " " + user.pod);
  EXPECT_THAT(names, ElementsAre("VM other/running Pending ",
                                 "VM s/running Running virt-launcher-running-x7k2p", "VM s/waits Pending "));
}

TEST(ClusterFacts, HasTheClaimsOfAVmsGpus) {
  auto vmi = test::vmi("s", "v", "", {});
  vmi["spec"]["domain"]["devices"]["gpus"] = {{{"name", "g"}, {"claimName", "c"}, {"requestName", "r"}}};
  vmi["spec"]["domain"]["devices"]["hostDevices"] = {
      {{"name", "nic"}, {"claimName", "n"}, {"requestName", "r"}},
      {{"name", "g"}, {"deviceName", kWholeL40s}},
      {{"name", "disk"}, {"deviceName", "example.com/disk"}}};
  kubectl::ClusterObjects objects;
  objects.vmis = {vmi};
  const auto user = kubectl::cluster_gpus(objects).users.at(0);
  EXPECT_THAT(user.claims, ElementsAre("c/r"));
  EXPECT_THAT(user.resources, ElementsAre(Pair(kWholeL40s, 1U)));
}

json claim_of(const std::string& node) {
  return {{"metadata", {{"name", "render-a"}, {"namespace", "studio"}, {"uid", "5be0c3aa"}}},
          {"status",
           {{"allocation",
             {{"devices",
               {{"results",
                 {{{"request", "card"},
                   {"driver", "gpu-ferry.io"},
                   {"pool", node + "/gpu-ferry"},
                   {"device", "whole-0000-65-00-0"}},
                  {{"request", "nic"}, {"driver", "nic.example.com"}, {"pool", node}, {"device", "d"}}}}}}}},
            {"reservedFor", {{{"resource", "pods"}, {"name", "vm-1"}, {"uid", "1"}}}}}}};
}

TEST(ClusterFacts, ShowsTheDevicesOfClaimsOnTheirNodes) {
  kubectl::ClusterObjects objects;
  objects.nodes = {gpu_node("n", json::object(), {}), gpu_node("other", json::object(), {})};
  objects.claims = {kubectl::counted_claim(claim_of("n"))};
  auto cluster = kubectl::cluster_gpus(objects);
  kubectl::drop_nodes_without_gpus(cluster);
  ASSERT_THAT(cluster.nodes, SizeIs(1)) << "a node with claims has GPUs";
  ASSERT_THAT(cluster.nodes.at(0).claims, SizeIs(1)) << "those of other drivers do not count";
  EXPECT_EQ(cluster.nodes.at(0).claims.at(0).text(),
            "claim studio/render-a: whole-0000-65-00-0, for pod vm-1");
  EXPECT_THAT(kubectl::list_text(cluster, std::nullopt),
              HasSubstr("\nn: claim studio/render-a: whole-0000-65-00-0, for pod vm-1\n"));
  EXPECT_EQ(kubectl::list_document(cluster)["nodes"][0]["claims"][0]["device"], "whole-0000-65-00-0");
  json waits = claim_of("n");
  waits["status"] = json::object();
  EXPECT_TRUE(kubectl::counted_claim(waits).is_null());
}

TEST(ClusterFacts, LooksAtKubevirtsSettingsForClaims) {
  kubectl::ClusterObjects objects = one_node({}, {});
  const auto verdict = [&](const std::string& id, const json& kubevirt) {
    const auto all = kubectl::cluster_checks(objects, std::vector<json>{kubevirt});
    const auto found = std::ranges::find(all, id, &Check::id);
    return found == all.end() ? std::string("none") : std::string(text(found->verdict));
  };
  EXPECT_EQ(verdict("kubevirt-claims", json::object()), "none") << "no pod of ferry dra";
  json pod = gpu_pod("ferry", "ferry-dra-x", "n", {});
  pod["spec"]["containers"] = {{{"name", "dra"}, {"command", {"/usr/bin/ferry-dra"}}}};
  objects.pods = {pod};
  EXPECT_EQ(verdict("kubevirt-claims", json::object()), "unknown");
  EXPECT_EQ(verdict("kubevirt-keeps-mediated", json::object()), "warn");
  json kubevirt = {{"status", {{"observedKubeVirtVersion", "v1.9.0"}}}};
  EXPECT_EQ(verdict("kubevirt-claims", kubevirt), "pass");
  kubevirt["spec"]["configuration"]["mediatedDevicesConfiguration"]["enabled"] = false;
  EXPECT_EQ(verdict("kubevirt-keeps-mediated", kubevirt), "pass");
  kubevirt["status"]["observedKubeVirtVersion"] = "v1.8.3";
  EXPECT_EQ(verdict("kubevirt-claims", kubevirt), "warn");
  kubevirt["spec"]["configuration"]["developerConfiguration"]["featureGates"] = json::array({"GPUsWithDRA"});
  EXPECT_EQ(verdict("kubevirt-claims", kubevirt), "pass");
  kubevirt["spec"]["configuration"]["developerConfiguration"]["disabledFeatureGates"] =
      json::array({"GPUsWithDRA"});
  EXPECT_EQ(verdict("kubevirt-claims", kubevirt), "warn");
  json& configuration = kubevirt["spec"]["configuration"];
  configuration["developerConfiguration"]["featureGates"] = json::array({"DisableMDEVConfiguration"});
  configuration["mediatedDevicesConfiguration"]["enabled"] = true;
  EXPECT_EQ(verdict("kubevirt-keeps-mediated", kubevirt), "warn") << "`enabled` wins over the gate";
  configuration.erase("mediatedDevicesConfiguration");
  EXPECT_EQ(verdict("kubevirt-keeps-mediated", kubevirt), "pass");
}

TEST(ClusterFacts, LooksForCountersInTheSlicesOfTheNode) {
  json pod = gpu_pod("ferry", "ferry-dra-x", "n", {});
  pod["spec"]["containers"] = {{{"name", "dra"}, {"command", {"/usr/bin/ferry-dra"}}}};
  const auto answer = [&](const std::vector<json>& pods, const Result<std::vector<json>>& slices,
                          const std::string& id = "dra-counters") {
    const auto all = kubectl::cluster_checks(one_node({}, pods), std::vector<json>(), slices);
    const auto found = std::ranges::find(all, id, &Check::id);
    return found == all.end() ? std::string("none") : std::string(text(found->verdict)) + " " + found->fix;
  };
  const json devices = {{"spec", {{"devices", json::array({{{"name", "whole-0000-65-00-0"}}})}}}};
  const json empty = {{"spec", json::object()}};
  const json counters = {{"spec", {{"sharedCounters", json::array({{{"name", "group-65"}}})}}}};
  EXPECT_EQ(answer({}, std::vector<json>{devices}), "none") << "no pod of ferry dra";
  EXPECT_THAT(answer({pod}, std::vector<json>{counters, devices}), StartsWith("pass"));
  EXPECT_THAT(answer({pod}, std::vector<json>{devices}),
              AllOf(StartsWith("warn"), HasSubstr("DRAPartitionableDevices"), HasSubstr("DRADeviceTaints")));
  EXPECT_THAT(answer({pod}, std::vector<json>{empty}), StartsWith("unknown"));
  EXPECT_THAT(answer({pod}, fail(Error{.code = kube::ApiErrc::forbidden, .message = "no right"})),
              StartsWith("unknown"));
  EXPECT_THAT(answer({pod}, std::vector<json>{devices}, "gpus-advertised"), StartsWith("pass"));
  EXPECT_THAT(answer({pod}, std::vector<json>{empty}, "gpus-advertised"), StartsWith("warn"));
  EXPECT_THAT(answer({pod}, fail(Error{.code = kube::ApiErrc::not_found, .message = "no such kind"})),
              AllOf(StartsWith("fail"), HasSubstr("1.34")));
}

TEST(ClusterFacts, LooksForNamesThatAPluginOrTwoDeviceClassesHave) {
  json pod = gpu_pod("ferry", "ferry-dra-x", "n", {});
  pod["spec"]["containers"] = {{{"name", "dra"}, {"command", {"/usr/bin/ferry-dra"}}}};
  const auto device_class = [](const char* name, const char* resource) {
    return json{{"metadata", {{"name", name}}}, {"spec", {{"extendedResourceName", resource}}}};
  };
  std::vector<json> slices = {{{"spec", {{"nodeName", "n"}, {"devices", {{{"name", "gpu"}}}}}}}};
  const auto answer = [&](const test::Quantities& capacity, const Result<std::vector<json>>& classes) {
    const auto all = kubectl::cluster_checks(one_node(capacity, {pod}), std::vector<json>(), slices, classes);
    const auto found = std::ranges::find(all, "dra-resource-names", &Check::id);
    return found == all.end() ? std::string("none") : std::string(text(found->verdict)) + " " + found->found;
  };
  const json l40s = device_class("l40s", kWholeL40s);
  const json none = {{"metadata", {{"name", "whole.gpu-ferry.io"}}}, {"spec", json::object()}};
  EXPECT_THAT(answer({{kWholeL40s, 2}}, std::vector<json>{none, none}), StartsWith("pass"));
  EXPECT_THAT(answer({}, std::vector<json>{none, l40s}), StartsWith("pass"));
  EXPECT_THAT(answer({{kWholeL40s, 0}}, std::vector<json>{l40s}), StartsWith("pass"));
  EXPECT_THAT(answer({{kWholeL40s, 2}}, std::vector<json>{none, l40s}),
              AllOf(StartsWith("fail"), HasSubstr(kWholeL40s), HasSubstr("DeviceClass l40s")));
  EXPECT_THAT(answer({}, std::vector<json>{l40s, device_class("newer", kWholeL40s)}),
              AllOf(StartsWith("warn"), HasSubstr("l40s, newer")));
  EXPECT_THAT(answer({}, fail(Error{.code = kube::ApiErrc::forbidden, .message = "no right"})),
              StartsWith("unknown"));
  slices.clear();
  EXPECT_THAT(answer({{kWholeL40s, 2}}, std::vector<json>{l40s}), StartsWith("pass"))
      << "a node of the device plugin alone";
}

json published_device(const char* type, const char* device, const char* profile = "", const char* vgpu = "") {
  const auto text = [](const char* value) { return json{{"string", value}}; };
  return {{"name", "any"},
          {"attributes",
           {{"type", text(type)},
            {"vendorID", text("0x10de")},
            {"deviceID", text(device)},
            {"productName", text("AD102GL [L40S]")},
            {"profile", text(profile)},
            {"vgpuType", text(vgpu)}}}};
}

json slice_of(const char* node, std::vector<json> devices) {
  return {{"spec", {{"driver", "gpu-ferry.io"}, {"nodeName", node}, {"devices", std::move(devices)}}}};
}

TEST(ClusterFacts, NamesTheDeviceClassesOfPublishedDevices) {
  const std::vector<json> slices = {
      {{"spec", {{"nodeName", "n"}, {"sharedCounters", json::array()}}}},
      slice_of("n", {published_device("whole", "0x26b9"),
                     published_device("vgpu", "0x26b9", "NVIDIA L40S-6Q", "L40S-6Q"),
                     published_device("vgpu", "0x26b9", "NVIDIA L40S-6Q", "L40S-6Q")}),
      slice_of("other", {published_device("whole", "0x26b9"), published_device("whole", "0x2330")})};
  const auto usual = kubectl::published_classes(slices, {});
  EXPECT_EQ(plugin::device_classes_text(usual.classes),
            "dra:\n"
            "  deviceClasses:\n"
            "    more:\n"
            "    - {model: \"10de:2330\", extendedResourceName: nvidia.com/AD102GL_L40S}\n"
            "    - {vgpuType: \"L40S-6Q\", extendedResourceName: nvidia.com/NVIDIA_L40S-6Q}\n");
  EXPECT_THAT(
      usual.notes,
      ElementsAre(HasSubstr("10de:26b9 is left out: nvidia.com/AD102GL_L40S is the name of 10de:2330")));
  const auto plugin_with = [](const char* node, const std::vector<std::string>& options) {
    json pod = gpu_pod("ferry", "plugin", node, {});
    pod["spec"]["containers"] = {
        {{"command", {"/usr/bin/ferry"}}, {"args", {"--host-root=/host", "plugin"}}}};
    for (const std::string& option : options) pod["spec"]["containers"][0]["args"].push_back(option);
    return pod;
  };
  const auto renamed = kubectl::published_classes(
      slices, {plugin_with("n", {"--mode=both", "--alias=10de:26b9=big", "--vgpu-name-template=v-{name}"}),
               plugin_with("other", {"--name-template=gpu-{device}", "--alias=10de:26b9=-"})});
  EXPECT_THAT(renamed.classes,
              ElementsAre(plugin::ResourceClass{"model", "10de:2330", "nvidia.com/gpu-2330"},
                          plugin::ResourceClass{"model", "10de:26b9", "nvidia.com/26b9"},
                          plugin::ResourceClass{"model", "10de:26b9", "nvidia.com/big"},
                          plugin::ResourceClass{"vgpuType", "L40S-6Q", "nvidia.com/v-NVIDIA_L40S-6Q"}));
  EXPECT_THAT(renamed.notes, IsEmpty()) << "an alias that is no name gives way to the ID, as on the node";
}

TEST(ClusterFacts, NamesNoDeviceClassThatOnlyTheNodeCanName) {
  const auto classes_of = [](const char* vendor, const std::string& product) {
    json device = published_device("whole", "0x0041");
    device["attributes"]["vendorID"]["string"] = vendor;
    device["attributes"]["productName"]["string"] = product;
    return kubectl::published_classes({slice_of("n", {device})}, {});
  };
  constexpr const char* kOnTheNode = "on node n `ferry kubevirt-cr --device-classes` has it";
  const auto of_other_vendor = classes_of("0x1e36", "S60 [Enflame]");
  EXPECT_THAT(of_other_vendor.classes, IsEmpty()) << "the vendor's domain comes from pci.ids";
  EXPECT_THAT(of_other_vendor.notes, ElementsAre(AllOf(HasSubstr("1e36:0041"), HasSubstr(kOnTheNode))));

  // The slice holds 64 bytes at most, and the plugin drops the bracket: a longer name could follow.
  const std::string cut = "Oland [" + std::string(57, 'A');
  const auto of_cut = classes_of("0x1002", cut);
  EXPECT_THAT(of_cut.classes, IsEmpty());
  EXPECT_THAT(of_cut.notes, ElementsAre(AllOf(HasSubstr("1002:0041"), HasSubstr(kOnTheNode))));
  EXPECT_THAT(
      classes_of("0x1002", cut.substr(0, 60)).classes,
      ElementsAre(plugin::ResourceClass{"model", "1002:0041", "amd.com/OLAND_" + std::string(53, 'A')}));
  EXPECT_THAT(classes_of("0x1002", std::string(64, 'A')).classes,
              ElementsAre(plugin::ResourceClass{"model", "1002:0041", "amd.com/0041"}))
      << "too long for a name whatever follows";
}

TEST(ClusterFacts, ReadsQuantitiesAsTheApiServerWritesThem) {
  const auto capacity = [](const json& quantity) {
    kubectl::ClusterObjects objects;
    objects.nodes = {gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {})};
    objects.nodes[0]["status"]["capacity"][kEighthA40] = quantity;
    const auto cluster = kubectl::cluster_gpus(objects);
    const auto& resources = cluster.nodes.at(0).resources;
    return resources.contains(kEighthA40) ? resources.at(kEighthA40).capacity : 0U;
  };
  EXPECT_EQ(capacity("16"), 16U);
  EXPECT_EQ(capacity("2k"), 2'000U);
  EXPECT_EQ(capacity(7U), 7U);
  for (const json& odd : {json("2Ki"), json("-1"), json(""), json("k"), json("99999999999999999999"),
                          json("18446744073709551615k"), json(-3), json(1.5), json::array(), json()})
    EXPECT_EQ(capacity(odd), 0U) << odd;
}

TEST(ClusterFacts, TellsAModeByANameThatIsMadeUnasked) {
  const auto mode = [](const std::string& name) { return kubectl::mode_by_name("nvidia.com/" + name); };
  for (const char* const name : {"AD102GL_L40S", "GH100_H100_SXM5_80GB", "GH100", "26b5", "pgpu", "nvswitch",
                                 "TU104BM_GEFORCE_RTX_2080_MAX-Q", "AD102_HIGH_DEFINITION_AUDIO_CONTROLLER"})
    EXPECT_EQ(mode(name), policy::Mode::passthrough) << name;
  for (const char* const name :
       {"NVIDIA_A40-8Q", "GRID_T4-1Q", "NVIDIA_RTX6000-Ada-24Q", "NVIDIA_H100-1-10CME", "GRID_V100D-8C"})
    EXPECT_EQ(mode(name), policy::Mode::vgpu) << name;
  for (const char* const name : {"gpu", "gpu.shared", "mig-1g.10gb", "mig-1g.10gb.shared"})
    EXPECT_EQ(mode(name), policy::Mode::host) << name;
  for (const char* const name : {"render", "gaming-small", "", "hostdev"})
    EXPECT_EQ(mode(name), std::nullopt) << name;
  EXPECT_EQ(kubectl::mode_by_name("example.com/AD102GL_L40S"), std::nullopt);
}

TEST(ClusterFacts, KnowsTheResourcesOfAmdAndIntelByFerrysNames) {
  for (const char* const name :
       {"amd.com/MI355X_VF", "amd.com/692f", "intel.com/DG2", "intel.com/e211_VF", "nvidia.com/render"})
    EXPECT_TRUE(kubectl::is_gpu_resource(name)) << name;
  for (const char* const name : {"amd.com/gpu", "amd.com/", "gpu.intel.com/i915", "intel.com/sriov_net",
                                 "intel.com/e211_net", "example.com/DG2", "nvidia.com/", "DG2", "cpu"})
    EXPECT_FALSE(kubectl::is_gpu_resource(name)) << name;
  const auto cluster =
      kubectl::cluster_gpus(one_node({{"amd.com/MI355X_VF", 2}, {"amd.com/gpu", 8}, {kWholeL40s, 1}},
                                     {gpu_pod("a", "p", "n", {{"amd.com/MI355X_VF", 1}})}));
  ASSERT_THAT(cluster.nodes.at(0).resources, SizeIs(2));
  EXPECT_EQ(cluster.nodes.at(0).resources.at("amd.com/MI355X_VF").used, 1U);
  EXPECT_THAT(kubectl::list_text(cluster, 65),
              AllOf(HasSubstr("amd.com/MI355X_VF"), HasSubstr("nvidia.com/AD102GL_")));
  json kubevirt;
  kubevirt["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"] = json::array();
  const auto resources = kubectl::permitted_resources(cluster, kubevirt);
  ASSERT_THAT(resources, SizeIs(2));
  EXPECT_EQ(resources[0].name, "amd.com/MI355X_VF");
  EXPECT_FALSE(resources[0].permitted());
  const json vmi = test::vmi("s", "v", "", {"amd.com/MI355X_VF"}, "Pending");
  const auto checks = kubectl::vm_checks(vmi, one_node({}, {}), std::vector<json>{kubevirt});
  EXPECT_EQ(std::ranges::count(checks, Verdict::fail, &Check::verdict), 2) << "not free, and not permitted";
}

TEST(ClusterFacts, GpusOfAnotherVendorHoldNoneBack) {
  const auto unwell = [](const std::string& used) {
    auto objects = one_node({{used, 1}, {kWholeL40s, 1}}, {gpu_pod("a", "p", "n", {{used, 1}})});
    objects.nodes[0]["status"]["allocatable"][kWholeL40s] = "0";
    return kubectl::cluster_gpus(objects).nodes.at(0).resources.at(kWholeL40s).unwell();
  };
  EXPECT_EQ(unwell("amd.com/NAVI_31"), 1U);
  EXPECT_EQ(unwell("nvidia.com/pgpu"), 0U) << "the same GPU may have this name for Kata";
}

TEST(ClusterFacts, SaysWhatLabelsAskForInTheAgentsOrder) {
  const auto asked = [](const json& labels) {
    kubectl::ClusterObjects objects;
    objects.nodes = {gpu_node("n", labels, {{kWholeL40s, 1}})};
    return kubectl::cluster_gpus(objects).nodes.at(0).asked_for;
  };
  json labels = {{"nvidia.com/vgpu.config", "v"}};
  EXPECT_EQ(asked(labels), "vGPU configuration v");
  labels["nvidia.com/gpu.workload.config"] = "vm-vgpu";
  EXPECT_EQ(asked(labels), "vm-vgpu, vGPU configuration v");
  labels["nvidia.com/gpu.workload.config"] = "container";
  EXPECT_EQ(asked(labels), "container");
  labels["nvidia.com/gpu.deploy.operands"] = "false";
  EXPECT_EQ(asked(labels), "to be left as it is");
  labels["gpu-ferry.io/policy"] = "mixed";
  EXPECT_EQ(asked(labels), "policy mixed");
  EXPECT_EQ(asked(json::object()), "");
  EXPECT_EQ(asked({{"nvidia.com/gpu.workload.config", "vm-pasthrough"}}), "");
  EXPECT_EQ(asked({{"nvidia.com/gpu.workload.config", "x"}, {"nvidia.com/vgpu.config", "v"}}),
            "vGPU configuration v");
}

TEST(ClusterFacts, SaysWhatDoesNotCount) {
  const auto said = [](const json& labels) {
    kubectl::ClusterObjects objects;
    objects.nodes = {gpu_node("n", labels, {})};
    const auto cluster = kubectl::cluster_gpus(objects);
    const std::string text = kubectl::node_text(cluster, cluster.nodes.at(0), {});
    const auto from = text.find("asked for: ");
    return text.substr(from, text.find('\n', from) - from);
  };
  constexpr const char* kMore = "; a policy's nodeSelector or a default may count (`kubectl ferry plan n`)";
  EXPECT_EQ(said({{"zone", "a"}}), std::string("asked for: nothing by its own labels") + kMore);
  json labels = {{"nvidia.com/gpu.workload.config", "vm-pasthrough"}};
  EXPECT_EQ(said(labels),
            std::string("asked for: nothing by its own labels (vm-pasthrough is no workload)") + kMore);
  labels["nvidia.com/vgpu.config"] = "v";
  EXPECT_EQ(said(labels), "asked for: vGPU configuration v (vm-pasthrough is no workload)");
  labels = {{"nvidia.com/gpu.workload.config", "vm-vgpu"}, {"gpu-ferry.io/deploy", "true"}};
  EXPECT_EQ(said(labels), "asked for: vm-vgpu, default vGPU configuration");
  labels["gpu-ferry.io/deploy"] = "false";
  EXPECT_EQ(said(labels),
            "asked for: vm-vgpu, default vGPU configuration; gpu-ferry.io/deploy=false keeps Ferry off");
}

TEST(ClusterFacts, ShowsAFaultOfKatasRuntimes) {
  json node = gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {});
  node["metadata"]["annotations"]["gpu-ferry.io/kata-error"] = "kata-a: blocked: why";
  kubectl::ClusterObjects objects;
  objects.nodes = {kubectl::counted_node(node)};
  const auto cluster = kubectl::cluster_gpus(objects);
  EXPECT_THAT(kubectl::list_text(cluster, {}), HasSubstr("\nn: Kata: kata-a: blocked: why\n"));
  EXPECT_THAT(kubectl::node_text(cluster, cluster.nodes.at(0), {}),
              HasSubstr("\nKata error: kata-a: blocked: why\n"));
  EXPECT_EQ(kubectl::list_document(cluster)["nodes"][0]["kata_error"], "kata-a: blocked: why");
}

TEST(ClusterFacts, PutsNothingIntoATerminalThatMovesItsCursor) {
  auto node = gpu_node("n", {{"gpu-ferry.io/state", "failed"}}, {});
  node["metadata"]["annotations"]["gpu-ferry.io/last-error"] = "a\033[2Jb\nc\xc2\x9b";
  kubectl::ClusterObjects objects;
  objects.nodes = {node};
  EXPECT_EQ(kubectl::cluster_gpus(objects).nodes.at(0).last_error, R"(a\x1b[2Jb\x0ac\xc2\x9b)");
}

TEST(ClusterFacts, PutsNoResourceIntoATerminalThatMovesItsCursor) {
  kubectl::ClusterObjects objects;
  objects.nodes = {gpu_node("n", json::object(), {{"nvidia.com/A\033[2J\x7f", 1}})};
  const auto resources = kubectl::cluster_gpus(objects).nodes.at(0).resources;
  ASSERT_EQ(resources.size(), 1U);
  EXPECT_EQ(resources.begin()->first, R"(nvidia.com/A\x1b[2J\x7f)");
}

// --- What is not as the API server makes it
// ------------------------------------------------------------------

/// Each part of a good object in turn replaced by each kind of value.
void with_each_part_replaced(const json& good, const std::function<void(const json&)>& use) {
  const json flat = good.flatten();
  std::set<std::string> places;
  for (const auto& [place, value] : flat.items()) {
    for (std::string at = place; !at.empty(); at.erase(at.find_last_of('/'))) places.insert(at);
  }
  for (const std::string& place : places) {
    for (const json& odd : {json(), json(true), json(-1), json(1e300), json("x"),
                            json::array({1, json::object()}), json{{"x", json::array()}}}) {
      json object = good;
      object[json::json_pointer(place)] = odd;
      use(object);
    }
  }
}

kubectl::ClusterObjects counted(const kubectl::ClusterObjects& objects) {
  kubectl::ClusterObjects out;
  out.notes = objects.notes;
  const auto take = [](const std::vector<json>& from, json (*taken)(const json&), std::vector<json>& to) {
    for (const json& object : from)
      if (json part = taken(object); !part.is_null()) to.push_back(std::move(part));
  };
  take(objects.nodes, kubectl::counted_node, out.nodes);
  take(objects.pods, kubectl::counted_pod, out.pods);
  take(objects.vmis, kubectl::counted_vmi, out.vmis);
  return out;
}

/// What is not counted of an object may not matter.
void expect_the_same_of_what_is_counted(const kubectl::ClusterObjects& objects) {
  const kubectl::ClusterGpus whole = kubectl::cluster_gpus(objects);
  const kubectl::ClusterGpus parts = kubectl::cluster_gpus(counted(objects));
  EXPECT_EQ(kubectl::list_document(parts).dump(), kubectl::list_document(whole).dump());
  EXPECT_EQ(kubectl::vms_document(parts).dump(), kubectl::vms_document(whole).dump());
  EXPECT_EQ(parts.nodes.size(), whole.nodes.size());
  for (std::size_t i = 0; i < std::min(parts.nodes.size(), whole.nodes.size()); ++i)
    EXPECT_EQ(parts.nodes[i].labels, whole.nodes[i].labels);
}

TEST(CountedObjects, SayTheSameOfACluster) {
  for (const auto& cluster : test::composed_clusters()) expect_the_same_of_what_is_counted(cluster.objects);
}

TEST(CountedObjects, AreTheSameAfterAHeartbeat) {
  json node = gpu_node("n", {{"gpu-ferry.io/state", "ready"}}, {{kWholeL40s, 1}});
  node["status"]["conditions"] = {
      {{"type", "MemoryPressure"}, {"status", "False"}, {"lastHeartbeatTime", "2026-11-27T20:00:00Z"}},
      {{"type", "Ready"}, {"status", "True"}, {"lastHeartbeatTime", "2026-11-27T20:00:00Z"}}};
  const json before = kubectl::counted_node(node);
  for (json& condition : node["status"]["conditions"])
    condition["lastHeartbeatTime"] = "2026-11-27T20:05:00Z";
  EXPECT_EQ(kubectl::counted_node(node), before);
  node["status"]["conditions"][1]["status"] = "Unknown";
  EXPECT_NE(kubectl::counted_node(node), before);
}

TEST(CountedObjects, AreSmallHoweverMuchThereIs) {
  const std::string much(100'000, 'x');
  for (const auto& object : {kubectl::counted_node, kubectl::counted_pod, kubectl::counted_vmi}) {
    const auto& good = test::composed_cluster("passthrough").objects;
    json whole = object == kubectl::counted_node  ? good.nodes[0]
                 : object == kubectl::counted_pod ? good.pods[0]
                                                  : good.vmis[0];
    whole["metadata"]["managedFields"] = {much};
    whole["metadata"]["annotations"]["of-others"] = whole["metadata"]["labels"]["of-others"] = much;
    whole["spec"]["volumes"] = whole["status"]["images"] = {much};
    whole["status"]["capacity"]["of-others"] = much;
    if (object == kubectl::counted_pod) whole["spec"]["containers"][0]["env"] = {much};
    EXPECT_LT(object(whole).dump().size(), 2'000U);
  }
  EXPECT_TRUE(kubectl::counted_pod({{"kind", "Pod"}}).is_null());
  EXPECT_TRUE(kubectl::counted_vmi({{"kind", "VirtualMachineInstance"}}).is_null());
}

void show_all(const kubectl::ClusterObjects& objects) {
  expect_the_same_of_what_is_counted(objects);
  const kubectl::ClusterGpus cluster = kubectl::cluster_gpus(objects);
  EXPECT_FALSE(kubectl::list_text(cluster, 80).empty());
  EXPECT_FALSE(kubectl::vms_text(cluster, 80).empty());
  EXPECT_TRUE(kubectl::list_document(cluster).is_object());
  EXPECT_TRUE(kubectl::vms_document(cluster).is_object());
  for (const kubectl::ClusterNode& node : cluster.nodes) {
    EXPECT_FALSE(kubectl::node_text(cluster, node, 80).empty());
    EXPECT_TRUE(kubectl::node_document(cluster, node).is_object());
  }
  EXPECT_EQ(kubectl::cluster_checks(objects, std::nullopt).size(), 8 * cluster.nodes.size());
}

TEST(MalformedObjects, AreNoReasonToFail) {
  const auto& good = test::composed_cluster("passthrough").objects;
  with_each_part_replaced(good.nodes[0], [&](const json& node) {
    auto objects = good;
    objects.nodes = {node};
    show_all(objects);
    kubectl::gathered_node(node);
  });
  with_each_part_replaced(good.pods[0], [&](const json& pod) {
    auto objects = good;
    objects.pods = {pod};
    show_all(objects);
    kubectl::gathered_pod(pod, "ferry");
  });
  with_each_part_replaced(good.vmis[0], [&](const json& vmi) {
    auto objects = good;
    objects.vmis = {vmi};
    show_all(objects);
    kubectl::gathered_vmi(vmi);
  });
}

}  // namespace
}  // namespace ferry::cli
