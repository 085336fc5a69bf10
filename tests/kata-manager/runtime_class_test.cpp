// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/runtime_class.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/config/config_tree.h"
#include "tests/support/must.h"

namespace ferry::kata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

KataClass class_of(const std::string& keys) {
  const ClassFile file = test::must(read_classes(
      {.file = "k.yaml",
       .text = "version: v2\nruntimeClasses:\n- {name: kata-nvidia-gpu, artifacts: {url: r/i:1}, " + keys +
               "}\n"}));
  return file.classes.at(0);
}

TEST(RuntimeClass, IsAManifest) {
  const auto classes = runtime_classes(
      class_of("aliases: [kata-qemu-nvidia-gpu], nodeSelector: {example.com/gpu: \"true\", zone: a}"));
  EXPECT_EQ(runtime_classes_yaml(classes),
            "apiVersion: node.k8s.io/v1\n"
            "kind: RuntimeClass\n"
            "metadata:\n"
            "  name: kata-nvidia-gpu\n"
            "  labels:\n"
            "    app.kubernetes.io/managed-by: ferry\n"
            "handler: kata-nvidia-gpu\n"
            "overhead:\n"
            "  podFixed:\n"
            "    cpu: \"1\"\n"
            "    memory: 10240Mi\n"
            "scheduling:\n"
            "  nodeSelector:\n"
            "    example.com/gpu: \"true\"\n"
            "    zone: a\n"
            "---\n"
            "apiVersion: node.k8s.io/v1\n"
            "kind: RuntimeClass\n"
            "metadata:\n"
            "  name: kata-qemu-nvidia-gpu\n"
            "  labels:\n"
            "    app.kubernetes.io/managed-by: ferry\n"
            "handler: kata-qemu-nvidia-gpu\n"
            "overhead:\n"
            "  podFixed:\n"
            "    cpu: \"1\"\n"
            "    memory: 10240Mi\n"
            "scheduling:\n"
            "  nodeSelector:\n"
            "    example.com/gpu: \"true\"\n"
            "    zone: a\n");
}

TEST(RuntimeClass, IsTheSameInJson) {
  const auto classes = runtime_classes(class_of("kind: snp"));
  const auto list = nlohmann::json::parse(runtime_classes_json(classes));
  const auto expected = nlohmann::json::parse(R"({
    "apiVersion": "v1", "kind": "List", "items": [{
      "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "kata-nvidia-gpu",
      "metadata": {"name": "kata-nvidia-gpu", "labels": {"app.kubernetes.io/managed-by": "ferry"}},
      "overhead": {"podFixed": {"cpu": "1", "memory": "10240Mi"}},
      "scheduling": {"nodeSelector": {"nvidia.com/cc.ready.state": "true",
                                      "amd.feature.node.kubernetes.io/snp": "true"}}}]})");
  EXPECT_EQ(list, expected);
}

TEST(RuntimeClass, IsReadBackAsStringsWhateverTheyLookLike) {
  const auto classes = runtime_classes(
      class_of("nodeSelector: {\"on\": \"no\", \"010\": \"1e3\", x: \"\", y: \"2026-01-01\", z: \"0x1F\"}, "
               "overhead: {cpu: 1, memory: \"2\"}"));
  const ConfigNode read = test::must(parse_config({.file = "m.yaml", .text = runtime_classes_yaml(classes)}));
  const ConfigNode& selector = read.find("scheduling")->value.find("nodeSelector")->value;
  std::map<std::string, std::string> seen;
  for (const ConfigMember& member : selector.members) {
    EXPECT_TRUE(member.key.is_string()) << member.key.text;
    EXPECT_TRUE(member.value.is_string()) << member.value.text;
    seen[member.key.text] = member.value.text;
  }
  EXPECT_EQ(seen, classes.at(0).node_selector);
  EXPECT_TRUE(read.find("overhead")->value.find("podFixed")->value.find("cpu")->value.is_string());
}

TEST(RuntimeClass, ReservesTheGuestsMemory) {
  const auto memory_of = [](const KataClass& kata) {
    return runtime_classes(kata).at(0).overhead.at("memory");
  };
  EXPECT_EQ(memory_of(class_of("kind: gpu")), "10240Mi");
  const KataClass larger = class_of("configuration: {hypervisor: {qemu: {default_memory: 16384}}}");
  EXPECT_EQ(memory_of(larger), "18432Mi");
  EXPECT_EQ(memory_of(class_of("overhead: {memory: 3Gi}")), "3Gi") << "what is said counts most";
}

TEST(RuntimeClass, IsForNodesOfItsKind) {
  EXPECT_THAT(runtime_classes(class_of("kind: gpu")).at(0).node_selector, IsEmpty());
  EXPECT_THAT(runtime_classes(class_of("kind: vgpu")).at(0).node_selector, IsEmpty());
  EXPECT_THAT(runtime_classes(class_of("kind: tdx")).at(0).node_selector,
              ElementsAre(Pair("intel.feature.node.kubernetes.io/tdx", "true"),
                          Pair("nvidia.com/cc.ready.state", "true")));
  EXPECT_THAT(runtime_classes(class_of("kind: tdx, nodeSelector: {a: b}")).at(0).node_selector,
              ElementsAre(Pair("a", "b")));
  EXPECT_THAT(runtime_classes(class_of("kind: tdx, nodeSelector: {}")).at(0).node_selector, IsEmpty());
}

TEST(RuntimeClass, NeverHasTheLabelThatGetsItDeleted) {
  for (const char* kind : {"gpu", "vgpu", "snp", "tdx"}) {
    const auto classes = runtime_classes(class_of(std::string("kind: ") + kind));
    EXPECT_THAT(runtime_classes_yaml(classes), Not(HasSubstr("kata-runtime-class")));
    EXPECT_THAT(runtime_classes_json(classes), Not(HasSubstr("kata-runtime-class")));
    EXPECT_THAT(runtime_classes_yaml(classes),
                HasSubstr("labels:\n    app.kubernetes.io/managed-by: ferry\nh"));
  }
}

TEST(RuntimeClass, MayBeNone) {
  EXPECT_EQ(runtime_classes_yaml({}), "");
  EXPECT_EQ(nlohmann::json::parse(runtime_classes_json({})).at("items").size(), 0U);
}

}  // namespace
}  // namespace ferry::kata
