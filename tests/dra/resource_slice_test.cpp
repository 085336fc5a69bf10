// SPDX-License-Identifier: Apache-2.0
#include "dra/slices/resource_slice.h"

#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/dra/some_gpus.h"

namespace ferry::dra {
namespace {

using nlohmann::json;
using test::hold;
using test::l4;
using test::must;
using test::node_with;

std::vector<ResourceSlice> published_slices() {
  NodeModel node = node_with({l4("0000:3b:00.0", 42)});
  node.gpus[0].types[0].most_per_gpu = 1;
  node.gpus[0].types[1].most_per_gpu = 1;
  node.gpus[0].memory_mib = 12 * 1024;
  hold(node, "vgpu-0000-3b-00-0-1150-0", "a");
  return slices_of(publication_of(node), node.owner, 9);
}

TEST(SliceJson, IsTheApisForm) {
  const std::vector<ResourceSlice> slices = published_slices();
  ASSERT_EQ(slices.size(), 2U);
  EXPECT_EQ(slice_json(slices[0]), json::parse(R"({
    "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
    "metadata": {"generateName": "00000-gpu-ferry.io-node7-",
                 "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node7", "uid": "8a6e"}]},
    "spec": {"driver": "gpu-ferry.io", "nodeName": "node7",
             "pool": {"name": "node7/gpu-ferry", "generation": 9, "resourceSliceCount": 2},
             "sharedCounters": [{"name": "group-42", "counters": {
               "framebuffer": {"value": "12Gi"}, "instances": {"value": "1"}}}]}})"));
  const json whole = slice_json(slices[1]);
  EXPECT_EQ(whole.at("metadata").at("generateName"), "00001-gpu-ferry.io-node7-");
  EXPECT_FALSE(whole.at("spec").contains("sharedCounters"));
  const json& devices = whole.at("spec").at("devices");
  ASSERT_EQ(devices.size(), 3U);
  EXPECT_EQ(devices[1], json::parse(R"({
    "name": "vgpu-0000-3b-00-0-1152-0",
    "attributes": {
      "type": {"string": "vgpu"}, "productName": {"string": "AD104GL [L4]"},
      "vendorID": {"string": "0x10de"}, "deviceID": {"string": "0x27b8"}, "iommuGroup": {"int": 42},
      "profile": {"string": "NVIDIA L4-12Q"}, "vgpuType": {"string": "L4-12Q"}, "typeID": {"int": 1152},
      "vgpuFramework": {"string": "vdev"},
      "resource.kubernetes.io/numaNode": {"int": 1},
      "resource.kubernetes.io/pcieRoot": {"string": "pci0000:3a"}},
    "capacity": {"framebuffer": {"value": "12Gi"}},
    "consumesCounters": [{"counterSet": "group-42", "counters": {"framebuffer": {"value": "12Gi"}}}],
    "taints": [{"key": "gpu-ferry.io/other-size", "value": "6144", "effect": "NoSchedule"}]})"));
  EXPECT_EQ(devices[2].at("name"), "whole-0000-3b-00-0");
  EXPECT_EQ(slice_json(published_slices()[1]).dump(), whole.dump()) << "the same slice, the same bytes";
}

TEST(SliceJson, HasCompatibilityGroupsAndNoExecute) {
  const ResourceSlice slice{
      .owner = {.node = "n"},
      .pool = "n/gpu-ferry",
      .devices = {{.name = "a",
                   .consumes = {{.set = "s", .counters = {{"c", 1}}, .compatibility_groups = {"size-6144"}}},
                   .taints = {{.key = "k", .value = "", .evicts = true}}}}};
  const json out = slice_json(slice).at("spec").at("devices").at(0);
  EXPECT_EQ(out.at("consumesCounters").at(0).at("compatibilityGroups"), json::parse(R"(["size-6144"])"));
  EXPECT_EQ(out.at("taints"), json::parse(R"([{"key": "k", "effect": "NoExecute"}])"));
  EXPECT_FALSE(slice_json(slice).at("metadata").contains("ownerReferences"));
}

TEST(SliceJson, ReadsBackAsItself) {
  for (const ResourceSlice& slice : published_slices()) EXPECT_EQ(must(read_slice(slice_json(slice))), slice);
}

TEST(SliceJson, IsReadAsTheServerHasIt) {
  json object = slice_json(published_slices()[0]);
  object["metadata"]["name"] = "0001f-gpu-ferry.io-node7-x8k2p";
  object["spec"]["sharedCounters"][0]["counters"]["instances"]["value"] = "1k";
  const ResourceSlice slice = must(read_slice(object));
  EXPECT_EQ(slice.index, 31U);
  EXPECT_EQ(slice.counter_sets.at(0).counters.at("instances"), 1000U);
  const ResourceSlice of_others = must(read_slice(json::parse(R"({
    "metadata": {"name": "by-hand"}, "spec": {"pool": {"name": "p", "generation": 3, "resourceSliceCount": 1},
    "devices": [{"name": "a", "attributes": {"v": {"version": "1.0.0"}, "b": {"bool": true}},
                 "taints": [{"key": "k", "effect": "None"}]}]}})")));
  EXPECT_EQ(of_others.index, 0U);
  EXPECT_TRUE(of_others.devices.at(0).attributes.empty());
  EXPECT_TRUE(of_others.devices.at(0).taints.empty());
}

TEST(SliceJson, OfAnotherFormIsRefusedWithTheKey) {
  for (const auto& [at, value, message] :
       {std::tuple{"/spec/pool", "7", "name: expected a text"},
        {"/spec/pool/name", "null", "name: expected a text"},
        {"/spec/pool/generation", "-1", "generation: expected a number from 0 on"},
        {"/spec/pool/resourceSliceCount", "\"2\"", "resourceSliceCount: expected a number from 0 on"},
        {"/spec/devices", "{}", "devices: expected a list"},
        {"/spec/devices/0", "7", "name: expected a text"},
        {"/spec/devices/0/capacity", "[]", "capacity: expected an object"},
        {"/spec/devices/0/capacity/framebuffer", "\"6Gi\"", "capacity: expected whole quantities"},
        {"/spec/devices/0/consumesCounters/0/counterSet", "1", "counterSet: expected a text"},
        {"/spec/devices/0/consumesCounters/0/counters/framebuffer/value", "\"6.5Gi\"",
         "counters: expected whole quantities"}}) {
    json object = slice_json(published_slices()[1]);
    object["metadata"]["name"] = "s";
    object[json::json_pointer(at)] = json::parse(value);
    const auto read = read_slice(object);
    ASSERT_FALSE(read) << at;
    EXPECT_EQ(read.error().code, Errc::malformed_host);
    EXPECT_EQ(read.error().message, std::string("ResourceSlice s: ") + message);
  }
  for (const char* const other : {"null", "[]", "7", "{}", R"({"spec": []})"})
    EXPECT_FALSE(read_slice(json::parse(other))) << other;
}

TEST(SliceJson, KeepsTheTimeOfATaint) {
  json object = slice_json(published_slices()[1]);
  EXPECT_FALSE(object.at("spec").at("devices").at(1).at("taints").at(0).contains("timeAdded"))
      << "the server sets it";
  object["spec"]["devices"][1]["taints"][0]["timeAdded"] = "2026-11-26T08:00:00Z";
  const ResourceSlice slice = must(read_slice(object));
  EXPECT_EQ(slice.devices.at(1).taints.at(0).time_added, "2026-11-26T08:00:00Z");
  EXPECT_EQ(slice_json(slice).at("spec").at("devices"), object.at("spec").at("devices"));
}

TEST(SliceJson, CutsALongNodeInItsName) {
  const ResourceSlice slice{.owner = {.node = std::string(253, 'n')}, .pool = "p", .index = 31};
  const json object = slice_json(slice);
  EXPECT_LE(object.at("metadata").at("generateName").get<std::string>().size(), 58U);
  EXPECT_EQ(object.at("spec").at("nodeName"), slice.owner.node);
}

// The features of a server.

TEST(ServerFeatures, AreNoneBeforeAProbe) {
  EXPECT_EQ(ServerFeatures(),
            (ServerFeatures{.counters = false, .taints = false, .compatibility_groups = false}));
}

TEST(ServerFeatures, AreTheFieldsThatComeBackFromAProbe) {
  const json sent = slice_json(probe_slice({.node = "node7"}));
  EXPECT_EQ(sent.at("spec").at("nodeName"), "node7") << "a node's token may create no other";
  const auto features = [&](const std::vector<std::string>& dropped) {
    json answer = sent;
    answer["metadata"]["name"] = "00000-gpu-ferry.io-node7-x8k2p";
    for (json& taint : answer["spec"]["devices"][0]["taints"]) taint["timeAdded"] = "2026-11-26T08:00:00Z";
    for (const std::string& field : dropped) {
      const json::json_pointer device("/spec/devices/0");
      answer[device].erase(field);
      for (json& consumption : answer[device]["consumesCounters"]) consumption.erase(field);
    }
    return must(features_of_probe(answer));
  };
  EXPECT_EQ(features({}), (ServerFeatures{.counters = true, .taints = true, .compatibility_groups = true}));
  EXPECT_EQ(features({"compatibilityGroups"}), (ServerFeatures{.counters = true, .taints = true}));
  EXPECT_EQ(features({"taints"}), (ServerFeatures{.counters = true, .compatibility_groups = true}));
  EXPECT_EQ(features({"consumesCounters"}), (ServerFeatures{.taints = true}));
  EXPECT_EQ(features({"consumesCounters", "taints"}), ServerFeatures());
}

TEST(ServerFeatures, AreNotReadFromSomethingElse) {
  const json invalid = json::parse(R"({"kind": "Status", "status": "Failure", "reason": "Invalid"})");
  const auto other = features_of_probe(invalid);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::malformed_host);
}

}  // namespace
}  // namespace ferry::dra
