// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster_objects.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kube/field_filter.h"

namespace ferry::agent {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(ClusterObjects, ANodesWords) {
  const auto node = node_object_of(json::parse(
      R"({"metadata":{"name":"n1","labels":{"a":"1","odd":7},"annotations":{"b":"2"}},"spec":{}})"));
  EXPECT_EQ(node.name, "n1");
  EXPECT_THAT(node.labels, ElementsAre(Pair("a", "1")));
  EXPECT_THAT(node.annotations, ElementsAre(Pair("b", "2")));
  EXPECT_THAT(node.runtime_handlers, IsEmpty());
}

TEST(ClusterObjects, ANodesRuntimeHandlers) {
  const auto handlers = [](const char* status) {
    return node_object_of(json{{"metadata", {{"name", "n1"}}}, {"status", json::parse(status)}})
        .runtime_handlers;
  };
  EXPECT_THAT(
      handlers(R"({"runtimeHandlers":[{"name":""},{"name":"runc","features":{"recursiveReadOnlyMounts":true}},
                           {"features":{}},{"name":7},null,"kata"]})"),
      ElementsAre("", "runc"));
  for (const char* none : {"null", "[]", "{}", R"({"runtimeHandlers":{}})", R"({"runtimeHandlers":[]})"})
    EXPECT_THAT(handlers(none), IsEmpty()) << none;
}

TEST(ClusterObjects, WhatIsNoObjectSaysNothing) {
  for (const char* text : {"null", "[]", "7", "{}", R"({"metadata":7})", R"({"metadata":{"labels":[]}})"}) {
    const json odd = json::parse(text);
    EXPECT_THAT(node_object_of(odd).labels, IsEmpty()) << text;
    EXPECT_THAT(configurations_of(odd), IsEmpty()) << text;
    EXPECT_THAT(pods_of({{"x", odd}}, {.spaces = {""}, .operator_space = ""}), testing::SizeIs(1))
        << "it has not ended, as far as is known";
  }
}

std::vector<std::string> files_of(const char* data) {
  std::vector<std::string> out;
  const json map = {{"metadata", {{"name", "m"}, {"namespace", "s"}}}, {"data", json::parse(data)}};
  for (const ConfigText& text : configurations_of(map)) out.push_back(text.file + "=" + text.text);
  return out;
}

TEST(ClusterObjects, AConfigMapsConfigurations) {
  EXPECT_THAT(files_of(R"({"config.yaml":"x","other":"y"})"), ElementsAre("ConfigMap s/m, config.yaml=x"));
  EXPECT_THAT(files_of(R"({"a.yaml":"x","b.yaml":"y"})"),
              ElementsAre("ConfigMap s/m, a.yaml=x", "ConfigMap s/m, b.yaml=y"));
  EXPECT_THAT(files_of("{}"), IsEmpty());
}

TEST(ClusterObjects, KeysThatAreNotLookedAtAreNamed) {
  const auto named = [](const char* map) {
    json object = json::parse(map);
    object["metadata"] = {{"name", "m"}, {"namespace", "s"}};
    return passed_over_of(object);
  };
  EXPECT_THAT(named(R"({"data":{"config.yaml":"x","other":"y"},"binaryData":{"b":"eA=="}})"),
              ElementsAre("ConfigMap s/m: key other is passed over, since there is a key config.yaml",
                          "ConfigMap s/m: key b is passed over: binaryData is not read"));
  EXPECT_THAT(named(R"({"data":{"a.yaml":"x","b.yaml":"y"}})"), IsEmpty());
  EXPECT_THAT(passed_over_of(json()), IsEmpty());
}

TEST(ClusterObjects, PodsThatHaveNotEnded) {
  const auto pod = [](const char* phase, const char* owner) {
    return json{{"metadata", {{"name", "p"}, {"ownerReferences", {{{"kind", owner}, {"name", "d"}}}}}},
                {"status", {{"phase", phase}}}};
  };
  const auto pods = pods_of({{"s/a", pod("Running", "DaemonSet")},
                             {"s/b", pod("Succeeded", "DaemonSet")},
                             {"s/c", pod("Failed", "DaemonSet")},
                             {"s/d", pod("Pending", "Job")}},
                            {.spaces = {""}, .operator_space = ""});
  ASSERT_EQ(pods.size(), 2U);
  EXPECT_EQ(pods[0].daemon_set, "d");
  EXPECT_EQ(pods[1].daemon_set, "");
}

// Anyone may write an owner into a pod, or call a DaemonSet nvidia-vfio-manager in a namespace of its own.
TEST(ClusterObjects, OwnersAreBelievedInNamespacesThatTenantsCannotWriteTo) {
  const auto pod = [](const char* space, const char* uid) {
    return json{
        {"metadata",
         {{"name", "p"},
          {"namespace", space},
          {"ownerReferences", {{{"kind", "DaemonSet"}, {"name", "nvidia-vfio-manager"}, {"uid", uid}}}}}}};
  };
  BelievedOwners believed{.spaces = {"gpu-operator", "kube-system"}, .operator_space = "gpu-operator"};
  const auto owner = [&](const char* space, const char* uid) {
    return pods_of({{"k", pod(space, uid)}}, believed).at(0).daemon_set;
  };
  EXPECT_EQ(owner("tenant", "real"), "");
  EXPECT_EQ(owner("gpu-operator", "made-up"), "nvidia-vfio-manager") << "the DaemonSets are not listed yet";
  believed.uids = {"real"};
  EXPECT_EQ(owner("gpu-operator", "real"), "nvidia-vfio-manager");
  EXPECT_EQ(owner("gpu-operator", "made-up"), "");
  EXPECT_EQ(owner("kube-system", "other"), "nvidia-vfio-manager");
}

TEST(ClusterObjects, AnOwnerThatIsNotBelievedIsNamed) {
  const auto doubt = [](const char* space, const char* name) {
    const json pod = {{"metadata",
                       {{"name", "p"},
                        {"namespace", space},
                        {"ownerReferences", {{{"kind", "DaemonSet"}, {"name", name}, {"uid", "made-up"}}}}}}};
    return pods_of({{"k", pod}}, {.spaces = {"gpu-operator", "kube-system"},
                                  .operator_space = "gpu-operator",
                                  .uids = std::set<std::string>{"real"}})
        .at(0)
        .doubt;
  };
  EXPECT_EQ(
      doubt("tenant", "nvidia-vfio-manager"),
      "pod tenant/p names DaemonSet nvidia-vfio-manager as its owner, which is not believed: tenants may "
      "write "
      "to namespace tenant, as far as Ferry knows; if NVIDIA's program runs there, add the namespace to "
      "gpuOperator.ownerNamespaces (ferry-agent --owner-namespace)");
  EXPECT_EQ(doubt("gpu-operator", "nvidia-dcgm"),
            "pod gpu-operator/p names DaemonSet nvidia-dcgm as its owner, which is not believed: namespace "
            "gpu-operator has no DaemonSet of that UID");
  EXPECT_EQ(doubt("kube-system", "nvidia-dcgm"), "");
  EXPECT_EQ(doubt("tenant", "fluentd"), "");
}

// The agent keeps these fields alone, and must find in them all that it finds in the whole.
TEST(ClusterObjects, TheFieldsThatAreKeptAreThoseThatAreRead) {
  const json node = {{"metadata", {{"name", "n1"}, {"uid", "u-n1"}}}};
  const auto pod = [](const char* name, const json& owner) {
    return json{{"metadata",
                 {{"name", name},
                  {"namespace", "s"},
                  {"uid", std::string("u-") + name},
                  {"resourceVersion", "1"},
                  {"deletionTimestamp", "1970-01-01T00:00:00Z"},
                  {"annotations", {{"kubernetes.io/config.mirror", "x"}, {"a", "b"}}},
                  {"ownerReferences", json::array({owner})}}},
                {"spec", {{"nodeName", "n1"}}},
                {"status",
                 {{"phase", "Running"},
                  {"containerStatuses", {{{"name", "c"}, {"state", {{"running", {{"startedAt", "x"}}}}}}}}}}};
  };
  const json set = {
      {"apiVersion", "apps/v1"}, {"kind", "DaemonSet"}, {"name", "d"}, {"uid", "u"}, {"controller", true}};
  const json on = {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", "n1"}, {"uid", "u-n1"}};
  const json vmi = {{"kind", "VirtualMachineInstance"}, {"name", "vm"}};
  const std::map<std::string, json> whole = {
      {"s/a", pod("a", set)}, {"s/b", pod("b", on)}, {"s/c", pod("c", vmi)}, {"s/d", pod("d", set)}};
  auto kept = whole;
  for (auto& [name, object] : kept) {
    kube::FieldFilter filter(pod_fields(), kube::kMostKept);
    ASSERT_TRUE(filter.take(object.dump()));
    object = json::parse(filter.finish());
    EXPECT_FALSE(object.contains("spec"));
  }
  const BelievedOwners believed{.spaces = {"s"}, .operator_space = ""};
  const auto pods = pods_of(kept, believed, &node);
  EXPECT_EQ(pods, pods_of(whole, believed, &node));
  EXPECT_EQ(pods.at(0).controller->text(), "s/d");
  EXPECT_EQ(pods.at(1).kept, "it is a static pod");
  EXPECT_EQ(pods.at(0).daemon_set, "d");
  EXPECT_TRUE(pods.at(0).runs);
  EXPECT_EQ(vmis_of(kept), vmis_of(whole));
}

TEST(ClusterObjects, VmisByTheirPods) {
  const auto pod = [](const char* name, const char* phase, const char* owner) {
    return json{
        {"metadata",
         {{"name", name},
          {"namespace", "s"},
          {"ownerReferences", {{{"kind", "Other"}, {"name", "o"}}, {{"kind", owner}, {"name", "vm"}}}}}},
        {"status", {{"phase", phase}}}};
  };
  EXPECT_THAT(vmis_of({{"s/a", pod("a", "Running", "VirtualMachineInstance")},
                       {"s/b", pod("b", "Succeeded", "VirtualMachineInstance")},
                       {"s/c", pod("c", "Running", "ReplicaSet")},
                       {"s/d", json()}}),
              ElementsAre(testing::Pair("s/a", "vm")));
}

TEST(ClusterObjects, APatchSaysOnlyWhatChanges) {
  EXPECT_TRUE(patch_of({}).is_null());
  EXPECT_EQ(patch_of({.labels = {{"a", "1"}, {"b", std::nullopt}}, .annotations = {{"c", "2"}}}),
            json::parse(R"({"metadata":{"labels":{"a":"1","b":null},"annotations":{"c":"2"}}})"));
  EXPECT_EQ(patch_of({.annotations = {{"c", std::nullopt}}}),
            json::parse(R"({"metadata":{"annotations":{"c":null}}})"));
}

}  // namespace
}  // namespace ferry::agent
