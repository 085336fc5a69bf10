// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster_objects.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kube/api_path.h"

namespace ferry {
namespace {

using nlohmann::json;

const json& at(const json& object, const char* key) {
  static const json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

std::string text_at(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::map<std::string, std::string> texts_at(const json& object, const char* key) {
  std::map<std::string, std::string> out;
  const json& values = at(object, key);
  if (!values.is_object()) return out;
  for (const auto& [name, value] : values.items())
    if (value.is_string()) out.emplace(name, value.get<std::string>());
  return out;
}

std::string daemon_set_of(const json& pod) {
  const json& owners = at(at(pod, "metadata"), "ownerReferences");
  if (!owners.is_array()) return {};
  for (const json& owner : owners)
    if (text_at(owner, "kind") == kDaemonSets.kind) return text_at(owner, "name");
  return {};
}

json changes_of(const LabelChanges& changes) {
  json out = json::object();
  for (const auto& [name, value] : changes) out[name] = value ? json(*value) : json();
  return out;
}

}  // namespace

NodeObject node_object_of(const json& node) {
  const json& metadata = at(node, "metadata");
  const std::string name = text_at(metadata, "name");
  return {.file = "Node " + name,
          .name = name,
          .labels = texts_at(metadata, "labels"),
          .annotations = texts_at(metadata, "annotations")};
}

std::vector<ConfigText> configurations_of(const json& config_map) {
  const json& metadata = at(config_map, "metadata");
  auto texts = texts_at(config_map, "data");
  if (const auto usual = texts.extract("config.yaml")) {
    texts.clear();
    texts.emplace(usual.key(), usual.mapped());
  }
  std::vector<ConfigText> out;
  for (auto& [key, text] : texts) {
    out.push_back({.file = fmt::format("ConfigMap {}/{}, {}", text_at(metadata, "namespace"),
                                       text_at(metadata, "name"), key),
                   .text = std::move(text)});
  }
  return out;
}

std::vector<PodOnNode> pods_of(const std::map<std::string, json>& pods) {
  std::vector<PodOnNode> out;
  for (const auto& [name, pod] : pods) {
    const std::string phase = text_at(at(pod, "status"), "phase");
    if (phase == "Succeeded" || phase == "Failed") continue;
    out.push_back({.name = text_at(at(pod, "metadata"), "name"), .daemon_set = daemon_set_of(pod)});
  }
  return out;
}

std::set<std::string> names_of(const std::map<std::string, json>& objects) {
  std::set<std::string> out;
  for (const auto& [name, object] : objects) out.insert(text_at(at(object, "metadata"), "name"));
  return out;
}

json patch_of(const LabelChanges& labels, const LabelChanges& annotations) {
  json metadata = json::object();
  if (!labels.empty()) metadata["labels"] = changes_of(labels);
  if (!annotations.empty()) metadata["annotations"] = changes_of(annotations);
  return metadata.empty() ? json() : json{{"metadata", std::move(metadata)}};
}

}  // namespace ferry
