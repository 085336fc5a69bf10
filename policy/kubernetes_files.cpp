// SPDX-License-Identifier: Apache-2.0
#include "policy/kubernetes_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/config/config_reader.h"
#include "common/text/text.h"
#include "policy/policy_yaml.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::policy {
namespace {

using Kind = ConfigNode::Kind;

tl::unexpected<Error> refuse(const ConfigText& source, int line, const std::string& what,
                             std::string hint = {}) {
  return fail(Errc::invalid_config, fmt::format("{}: {}", source.place(line), what), std::move(hint));
}

const ConfigNode* value_at(const ConfigNode& map, std::string_view key) {
  const ConfigMember* member = map.find(key);
  return member == nullptr ? nullptr : &member->value;
}

std::string kind_of(const ConfigNode& object) {
  const ConfigNode* kind = value_at(object, "kind");
  return kind != nullptr && kind->kind == Kind::scalar ? kind->text : std::string();
}

Result<std::string> text_of(const ConfigText& file, const ConfigMember& member) {
  if (!member.value.is_string()) {
    return refuse(
        file, member.value.line,
        fmt::format("{}: expected a string, found {}", member.key.text, member.value.described()),
        member.value.kind == Kind::scalar ? fmt::format("put it in quotes: \"{}\"", member.value.text) : "");
  }
  return member.value.text;
}

// Reads labels or annotations.
Result<> read_strings(const ConfigText& file, const ConfigNode& metadata, std::string_view key,
                      std::map<std::string, std::string>& into) {
  const ConfigNode* strings = value_at(metadata, key);
  if (strings == nullptr || strings->kind == Kind::null) return {};
  if (strings->kind != Kind::map) {
    return refuse(file, strings->line,
                  fmt::format("metadata.{}: expected a map, found {}", key, strings->described()));
  }
  for (const ConfigMember& member : strings->members) {
    auto value = text_of(file, member);
    if (!value) return fail(std::move(value).error());
    into[member.key.text] = std::move(*value);
  }
  return {};
}

}  // namespace

Result<NodeObject> read_node_object(const std::filesystem::path& path) {
  auto file = read_config_text(path);
  if (!file) return fail(std::move(file).error());
  auto root = parse_config(*file);
  if (!root) return fail(std::move(root).error());
  if (kind_of(*root) != "Node") {
    return refuse(
        *file, std::max(root->line, 1),
        kind_of(*root).empty() ? "not a Node object" : fmt::format("a {}, not a Node object", kind_of(*root)),
        "give what 'kubectl get node NAME -o yaml' prints");
  }
  NodeObject node{.file = file->file, .name = {}, .labels = {}};
  const ConfigNode* metadata = value_at(*root, "metadata");
  const ConfigMember* name = metadata == nullptr ? nullptr : metadata->find("name");
  if (name == nullptr) return refuse(*file, root->line, "metadata.name: the key is missing");
  auto text = text_of(*file, *name);
  if (!text) return fail(std::move(text).error());
  node.name = std::move(*text);

  if (auto r = read_strings(*file, *metadata, "labels", node.labels); !r) return fail(std::move(r).error());
  if (auto r = read_strings(*file, *metadata, "annotations", node.annotations); !r)
    return fail(std::move(r).error());
  const ConfigNode* status = value_at(*root, "status");
  const ConfigNode* handlers =
      status == nullptr || status->kind != Kind::map ? nullptr : value_at(*status, "runtimeHandlers");
  if (handlers == nullptr || handlers->kind == Kind::null) return node;
  if (handlers->kind != Kind::list) {
    return refuse(*file, handlers->line,
                  fmt::format("status.runtimeHandlers: expected a list, found {}", handlers->described()));
  }
  for (const ConfigNode& handler : handlers->items) {
    if (handler.kind != Kind::map) {
      return refuse(*file, handler.line,
                    fmt::format("status.runtimeHandlers: expected a map, found {}", handler.described()));
    }
    const ConfigMember* called = handler.find("name");
    if (called == nullptr) continue;  // the runtime's default handler
    auto handler_name = text_of(*file, *called);
    if (!handler_name) return fail(std::move(handler_name).error());
    node.runtime_handlers.insert(std::move(*handler_name));
  }
  return node;
}

Result<std::string> profile_name(const NodeObject& node, const std::optional<std::string>& otherwise) {
  if (const auto label = node.labels.find(kVgpuConfigLabel);
      label != node.labels.end() && !label->second.empty()) {
    return label->second;
  }
  if (otherwise) return *otherwise;
  std::vector<std::string> names;
  names.reserve(node.labels.size());
  for (const auto& [name, value] : node.labels) names.push_back(name);
  return fail(Errc::invalid_config,
              fmt::format("{}: node {} has no label {}{}", node.file, node.name, kVgpuConfigLabel,
                          node.labels.contains(kVgpuConfigLabel) ? " with a value"
                                                                 : did_you_mean(kVgpuConfigLabel, names)),
              fmt::format("kubectl label node {} {}=NAME, or choose the configuration by name", node.name,
                          kVgpuConfigLabel));
}

Result<vgpu::ProfileFile> read_profile_file(const std::filesystem::path& path, Reading how) {
  return read_carried(path, "profile", how, &vgpu::read_profiles);
}

Result<PolicyFile> read_policy_file(const std::filesystem::path& path, Reading how) {
  return read_carried(path, "policy", how, &read_policies);
}

}  // namespace ferry::policy
