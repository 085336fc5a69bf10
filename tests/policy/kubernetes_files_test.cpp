// SPDX-License-Identifier: Apache-2.0
#include "policy/kubernetes_files.h"

#include <ostream>

#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

/// Messages name the file with its directory, which is another one in each run.
std::string without(const std::string& directory, std::string message) {
  for (auto at = message.find(directory); at != std::string::npos; at = message.find(directory)) {
    message.erase(at, directory.size() + 1);
  }
  return message;
}

class Files : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    scratch.file(name, text);
    return scratch.path() / name;
  }
  template <typename T>
  std::string refusal(const Result<T>& result) const {
    if (result) return "(none)";
    EXPECT_EQ(result.error().code, Errc::invalid_config);
    const std::string hint = result.error().hint.empty() ? "" : " | " + result.error().hint;
    return without(scratch.path().string(), result.error().message + hint);
  }
  std::string node_refusal(const std::string& text) const {
    return refusal(read_node_object(write("node.yaml", text)));
  }
  std::string profile_refusal(const std::string& text) const {
    return refusal(read_profile_file(write("map.yaml", text)));
  }
  test::ScratchDirectory scratch;
};

constexpr const char* kNode = R"(apiVersion: v1
kind: Node
metadata:
  name: gpu-7
  labels:
    kubernetes.io/hostname: gpu-7
    nvidia.com/gpu.count: "2"
    nvidia.com/vgpu.config: render-mix
  annotations:
    example.com/note: "7"
spec: {}
)";

class NodeFile : public Files {};

TEST_F(NodeFile, GivesNameLabelsAndAnnotations) {
  const auto node = read_node_object(write("node.yaml", kNode));
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(node->name, "gpu-7");
  EXPECT_THAT(node->labels,
              ElementsAre(Pair("kubernetes.io/hostname", "gpu-7"), Pair("nvidia.com/gpu.count", "2"),
                          Pair("nvidia.com/vgpu.config", "render-mix")));
  EXPECT_THAT(node->annotations, ElementsAre(Pair("example.com/note", "7")));
  EXPECT_EQ(profile_name(*node, {}).value(), "render-mix");
  EXPECT_EQ(profile_name(*node, "default").value(), "render-mix");
}

TEST_F(NodeFile, GivesTheRuntimeHandlersThatItsKubeletLists) {
  const auto handlers = [&](const std::string& status) {
    return read_node_object(write("node.yaml", "kind: Node\nmetadata: {name: a}\n" + status))
        .value()
        .runtime_handlers;
  };
  EXPECT_THAT(handlers("status:\n  runtimeHandlers:\n  - {features: {}, name: ''}\n  - {features: {}}\n"
                       "  - name: kata-a\n"),
              ElementsAre("", "kata-a"));
  for (const char* none :
       {"", "status:\n", "status: {}\n", "status: {runtimeHandlers: null}\n", "status: [a]\n"})
    EXPECT_THAT(handlers(none), testing::IsEmpty()) << none;
}

TEST_F(NodeFile, MayBeJson) {
  const auto node = read_node_object(write("node.json", R"({
    "kind": "Node", "apiVersion": "v1",
    "metadata": {"name": "gpu-7", "labels": {"nvidia.com/vgpu.config": "half"}}
})"));
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(profile_name(*node, {}).value(), "half");
}

TEST_F(NodeFile, WithoutTheLabelNeedsADefault) {
  const auto node = read_node_object(write("node.yaml", "kind: Node\nmetadata:\n  name: gpu-7\n"));
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(profile_name(*node, "default").value(), "default");
  EXPECT_EQ(refusal(profile_name(*node, {})),
            "node.yaml: node gpu-7 has no label nvidia.com/vgpu.config | kubectl label node gpu-7 "
            "nvidia.com/vgpu.config=NAME, or choose the configuration by name");
}

TEST_F(NodeFile, TakesAnEmptyLabelForNone) {
  const auto node = read_node_object(
      write("node.yaml", "kind: Node\nmetadata:\n  name: gpu-7\n  labels: {nvidia.com/vgpu.config: \"\"}\n"));
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_EQ(profile_name(*node, "default").value(), "default");
  EXPECT_THAT(refusal(profile_name(*node, {})),
              testing::StartsWith("node.yaml: node gpu-7 has no label nvidia.com/vgpu.config with a value"));
}

TEST_F(NodeFile, SuggestsALabelThatIsNear) {
  const auto node = read_node_object(
      write("node.yaml", "kind: Node\nmetadata:\n  name: gpu-7\n  labels: {nvidia.com/vgpu-config: a}\n"));
  ASSERT_TRUE(node) << node.error().message;
  EXPECT_THAT(refusal(profile_name(*node, {})),
              testing::StartsWith("node.yaml: node gpu-7 has no label nvidia.com/vgpu.config; did you mean "
                                  "'nvidia.com/vgpu-config'?"));
}

TEST_F(NodeFile, IsRefusedWhenItIsSomethingElse) {
  const std::string hint = " | give what 'kubectl get node NAME -o yaml' prints";
  EXPECT_EQ(node_refusal(""), "node.yaml:1: not a Node object" + hint);
  EXPECT_EQ(node_refusal("- a\n"), "node.yaml:1: not a Node object" + hint);
  EXPECT_EQ(node_refusal("# head\nkind: Pod\n"), "node.yaml:2: a Pod, not a Node object" + hint);
  EXPECT_EQ(node_refusal("kind: [Node]\n"), "node.yaml:1: not a Node object" + hint);
  EXPECT_EQ(node_refusal("kind: Node\n"), "node.yaml:1: metadata.name: the key is missing");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata: {}\n"), "node.yaml:1: metadata.name: the key is missing");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata: [a]\n"), "node.yaml:1: metadata.name: the key is missing");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata:\n  name: 7\n"),
            "node.yaml:3: name: expected a string, found 7 | put it in quotes: \"7\"");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata:\n  name: a\n  labels: [b]\n"),
            "node.yaml:4: metadata.labels: expected a map, found a list");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata:\n  name: a\n  labels:\n    nvidia.com/vgpu.config: 010\n"),
            "node.yaml:5: nvidia.com/vgpu.config: expected a string, found 010 | put it in quotes: \"010\"");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata:\n  name: a\n  annotations: b\n"),
            "node.yaml:4: metadata.annotations: expected a map, found the string 'b'");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata: {name: a}\nstatus: {runtimeHandlers: {}}\n"),
            "node.yaml:3: status.runtimeHandlers: expected a list, found a map");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata: {name: a}\nstatus:\n  runtimeHandlers:\n  - kata\n"),
            "node.yaml:5: status.runtimeHandlers: expected a map, found the string 'kata'");
  EXPECT_EQ(node_refusal("kind: Node\nmetadata: {name: a}\nstatus: {runtimeHandlers: [{name: 7}]}\n"),
            "node.yaml:3: name: expected a string, found 7 | put it in quotes: \"7\"");
  EXPECT_EQ(node_refusal("kind: Node\nkind: Node\n"),
            "node.yaml:2: kind: the key stands twice, first at node.yaml:1");
  EXPECT_EQ(refusal(read_node_object(scratch.path() / "missing.yaml")),
            "read missing.yaml: No such file or directory | give the path of a file that can be read");
}

constexpr const char* kConfigMap = R"(apiVersion: v1
kind: ConfigMap
metadata:
  name: default-vgpu-devices-config
data:
  config.yaml: |
    version: v1
    vgpu-configs:
      half:
        - devices: all
          vgpu-devices: {"T4-8Q": 2}
)";

class ProfilesFile : public Files {};

TEST_F(ProfilesFile, MayBeAPlainFile) {
  const auto file = read_profile_file(
      write("p.yaml", "version: v1\nvgpu-configs:\n  a: [{devices: all, vgpu-devices: {}}]\n"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->names(), ElementsAre("a"));
  EXPECT_EQ(file->file, (scratch.path() / "p.yaml").string());
}

TEST_F(ProfilesFile, MayBeEmpty) {
  const auto file = read_profile_file(write("p.yaml", ""));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(
      refusal(vgpu::select_profile(*file, "a")),
      "p.yaml: holds no configurations | it needs 'version: v1' and at least one entry under vgpu-configs");
}

TEST_F(ProfilesFile, MayBeAConfigMapAndCountsItsLines) {
  const auto file = read_profile_file(write("map.yaml", kConfigMap));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->names(), ElementsAre("half"));
  const vgpu::Profile& half = file->profiles[0];
  EXPECT_EQ(without(scratch.path().string(), half.place), "map.yaml:9");
  EXPECT_EQ(without(scratch.path().string(), half.items.at(0).place), "map.yaml:10");
  EXPECT_EQ(without(scratch.path().string(), half.items[0].vgpus.at(0).place), "map.yaml:11");
}

TEST_F(ProfilesFile, PointsAtTheLineOfTheConfigMap) {
  std::string text = kConfigMap;
  text.replace(text.find("T4-8Q"), 5, "t4-8q");
  EXPECT_EQ(
      profile_refusal(text),
      "map.yaml:11: vgpu-configs.half[0].vgpu-devices: 't4-8q' is not the name of a vGPU type | names look "
      "like L40S-12Q, RTX6000-Ada-24Q or H100-1-10CME: board, size in GiB, one of A B C Q");
  text = kConfigMap;
  text.replace(text.find("{\"T4-8Q\": 2}"), 12, "{\"T4-8Q: 2}");
  EXPECT_THAT(profile_refusal(text), testing::StartsWith("map.yaml:11: not readable as YAML: "));
}

TEST_F(ProfilesFile, TakesTheOnlyKeyOfAConfigMap) {
  std::string text = kConfigMap;
  text.replace(text.find("config.yaml"), 11, "profiles");
  EXPECT_TRUE(read_profile_file(write("map.yaml", text)));
}

TEST_F(ProfilesFile, PrefersConfigYamlAmongSeveralKeys) {
  EXPECT_TRUE(read_profile_file(write("map.yaml", std::string(kConfigMap) + "  other: text\n")));
}

TEST_F(ProfilesFile, SaysOnceWhatIsLetPass) {
  const std::string twice = "version: v1\nversion: v1\n";
  const auto file = read_profile_file(write("p.yaml", twice), Reading::lenient);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->warnings, ElementsAre(HasSubstr("p.yaml:2: version: the key stands twice, first at")));
  const auto map = read_profile_file(
      write("map.yaml",
            "kind: ConfigMap\nkind: ConfigMap\ndata:\n  config.yaml: |\n    version: v1\n    version: v1\n"),
      Reading::lenient);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_THAT(map->warnings, ElementsAre(HasSubstr("map.yaml:6: version: the key stands twice"),
                                         HasSubstr("map.yaml:2: kind: the key stands twice")));
}

TEST_F(ProfilesFile, MayBeAConfigMapInJson) {
  const auto file = read_profile_file(write("map.json", R"({"kind": "ConfigMap", "data": {
"config.yaml": "version: v1\nvgpu-configs:\n  a: [{devices: all, vgpu-devices: {T4-4Q: 1}}]\n"}})"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(without(scratch.path().string(), file->profiles.at(0).items.at(0).place),
            "map.json:2 (line 3 of the text)");
}

TEST_F(ProfilesFile, IsRefusedWithWhatItIsInstead) {
  const std::string carrier =
      " | give the file itself, or a ConfigMap that has it under data, key config.yaml";
  EXPECT_EQ(profile_refusal("kind: Secret\n"),
            "map.yaml:1: kind: expected a ConfigMap or a profile file, found the string 'Secret'" + carrier);
  EXPECT_EQ(profile_refusal("kind:\n"),
            "map.yaml:1: kind: expected a ConfigMap or a profile file, found nothing" + carrier);
  EXPECT_EQ(
      refusal(read_policy_file(write("policy.yaml", "kind: Secret\n"))),
      "policy.yaml:1: kind: expected a ConfigMap or a policy file, found the string 'Secret'" + carrier);
  const std::string hint = " | put the configuration under data, key config.yaml";
  EXPECT_EQ(profile_refusal("kind: ConfigMap\n"), "map.yaml:1: data: the ConfigMap carries no data" + hint);
  EXPECT_EQ(profile_refusal("kind: ConfigMap\ndata: {}\n"),
            "map.yaml:2: data: the ConfigMap carries no data" + hint);
  EXPECT_EQ(profile_refusal("kind: ConfigMap\ndata: [a]\n"),
            "map.yaml:2: data: the ConfigMap carries no data" + hint);
  EXPECT_EQ(profile_refusal("kind: ConfigMap\ndata:\n  a: x\n  b: y\n"),
            "map.yaml:3: data: has no key config.yaml, and more than one other: a, b | name the one with the "
            "configuration config.yaml");
  EXPECT_EQ(
      profile_refusal("kind: ConfigMap\ndata:\n  config.yaml:\n    version: v1\n"),
      "map.yaml:4: data.config.yaml: expected a text, found a map | write it as a block: put | after the "
      "colon and indent the configuration below it");
  EXPECT_EQ(refusal(read_profile_file(scratch.path() / "missing.yaml")),
            "read missing.yaml: No such file or directory | give the path of a file that can be read");
  EXPECT_EQ(profile_refusal("kind: ConfigMap\ndata: {config.yaml: v}\n"),
            "map.yaml:2 (line 1 of the text): expected a map with version and vgpu-configs, found the string "
            "'v' | begin "
            "the file with 'version: v1', and 'vgpu-configs:' below it");
  EXPECT_THAT(profile_refusal(std::string(kConfigMap) + "---\n" + kConfigMap),
              testing::StartsWith("map.yaml:13: a second document begins here"));
}

}  // namespace
}  // namespace ferry::policy
