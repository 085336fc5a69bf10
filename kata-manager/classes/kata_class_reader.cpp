// SPDX-License-Identifier: Apache-2.0
// Reads one class of a class file.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "common/text/words.h"
#include "kata-manager/classes/class_parts.h"
#include "kata-manager/classes/kubernetes_words.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {
namespace {

using Kind = ConfigNode::Kind;

constexpr std::string_view kFileUrl = "file://";
constexpr Words<KataKind, 4> kKinds = {
    {{"gpu", KataKind::gpu}, {"vgpu", KataKind::vgpu}, {"snp", KataKind::snp}, {"tdx", KataKind::tdx}}};

constexpr const char* kName = "name";
constexpr const char* kArtifacts = "artifacts";
constexpr const char* kUrl = "url";
constexpr const char* kPullSecret = "pullSecret";
constexpr const char* kNodeSelector = "nodeSelector";
constexpr const char* kKind = "kind";
constexpr const char* kConfiguration = "configuration";
constexpr const char* kAllowSetuid = "allowSetuid";
constexpr const char* kAllowHostPaths = "allowHostPaths";

void read_kind(const ClassPart& part, KataKind& into) {
  const ConfigNode* node = part.find(kKind);
  if (node == nullptr) return;
  if (const auto kind = node->is_string() ? value_for(kKinds, node->text) : std::nullopt) {
    into = *kind;
    return;
  }
  if (node->is_string() && node->text == "mdev") {
    return part.refuse(*node, kKind,
                       "Kata gives a VM that starts the whole GPU in place of its mediated device",
                       "vgpu is for virtual functions that carry a vGPU; mediated devices go to KubeVirt");
  }
  std::vector<std::string> known;
  for (const auto& [word, kind] : kKinds) known.emplace_back(word);
  part.refuse(*node, kKind,
              fmt::format("expected one of {}, found {}{}", fmt::join(known, ", "), node->described(),
                          did_you_mean(node->text, known)));
}

void check_url(const ClassPart& part, const ConfigNode& node, const std::string& url) {
  if (url.starts_with(kFileUrl)) {
    if (is_host_path(std::string_view(url).substr(kFileUrl.size()))) return;
    return part.refuse(node, kUrl, fmt::format("'{}' names no folder of this host", url),
                       "file:///DIR, with an absolute path without '..'");
  }
  if (url.find("://") != std::string::npos) {
    return part.refuse(
        node, kUrl, fmt::format("'{}' is no reference", url),
        "an OCI reference has no scheme: registry.example/kata-gpu:1; a folder is file:///DIR");
  }
  if (std::ranges::any_of(url, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; }))
    part.refuse(node, kUrl, fmt::format("'{}' has a blank in it", url));
}

void read_artifacts(const ClassPart& part, KataArtifacts& into) {
  const ClassPart artifacts = part.at(kArtifacts);
  if (artifacts.map == nullptr)
    return part.refuse(*part.map, kArtifacts, "the key is missing", "artifacts: {url: REFERENCE}");
  artifacts.check_keys({kUrl, kPullSecret}, {kConfiguration, kAllowSetuid, kAllowHostPaths});
  const ConfigNode* url = artifacts.find(kUrl);
  if (url == nullptr) return artifacts.refuse(*artifacts.map, kUrl, "the key is missing");
  const auto is_given = [](std::string_view text) { return !text.empty(); };
  const auto is_pull_secret = [](std::string_view text) { return text.empty() || is_object_name(text); };
  artifacts.text_at(kUrl, "an OCI reference or file:///DIR", is_given, into.url);
  check_url(artifacts, *url, into.url);
  artifacts.text_at(kPullSecret, "the name of a Secret", is_pull_secret, into.pull_secret);
  if (part.is_nvidias) return;
  const auto is_toml_path = [](std::string_view text) {
    return text.ends_with(".toml") && is_host_path("/" + std::string(text)) && !text.starts_with('/');
  };
  std::string configuration;
  artifacts.text_at(kConfiguration, "a .toml file in the artifact", is_toml_path, configuration);
  into.configuration = configuration;
  const auto is_allowed_path = [](std::string_view text) { return text == "*" || is_host_path(text); };
  artifacts.texts_at(kAllowHostPaths, "an absolute path of the host, or *", is_allowed_path,
                     into.allow_host_paths);
  artifacts.flag_at(kAllowSetuid, into.allow_setuid);
}

void read_overhead(const ClassPart& part, KataClass& into) {
  const ClassPart overhead = part.at("overhead");
  if (overhead.map == nullptr) return;
  into.overhead.emplace();
  for (const ConfigMember& resource : overhead.map->members) {
    const std::string& name = resource.key.text;
    if (!is_label_key(name)) return overhead.refuse(resource.key, name, "this is not the name of a resource");
    // A quantity may stand with or without quotes.
    if (resource.value.kind != Kind::scalar || !parse_quantity(resource.value.text)) {
      return overhead.refuse(
          resource.value, name,
          fmt::format("expected a quantity such as 10240Mi or 1, found {}", resource.value.described()));
    }
    into.overhead->emplace(name, resource.value.text);
  }
}

// Kata's settings are tables of tables. A setting one level too high would silently change nothing.
void read_configuration(const ClassPart& part, KataClass& into) {
  const ClassPart configuration = part.at(kConfiguration);
  if (configuration.map == nullptr) return;
  configuration.check_keys({"hypervisor", "agent", "runtime", "image", "factory"}, {});
  for (const ConfigMember& table : configuration.map->members) {
    const std::string& name = table.key.text;
    if (table.value.kind != Kind::map) {
      return configuration.refuse(table.value, name,
                                  fmt::format("expected a map, found {}", table.value.described()));
    }
    if (name != "hypervisor" && name != "agent") continue;
    for (const ConfigMember& inner : table.value.members) {
      if (inner.value.kind == Kind::map) continue;
      return configuration.refuse(inner.key, fmt::format("{}.{}", name, inner.key.text),
                                  fmt::format("expected a map, found {}", inner.value.described()),
                                  name == "agent" ? "write agent: {kata: {dial_timeout: 1200}}"
                                                  : "write hypervisor: {qemu: {default_memory: 16384}}");
    }
  }
  auto table = toml_of(*part.reader, *configuration.map, configuration.path);
  if (!table) return part.blame(std::move(table).error());
  into.configuration = std::move(*table);
}

void read_ours(const ClassPart& part, KataClass& into) {
  part.texts_at("aliases", "the name of a handler, a DNS label", is_handler_name, into.aliases);
  read_kind(part, into.kind);
  read_overhead(part, into);
  const auto is_snapshotter = [](std::string_view text) { return !text.empty() && is_label_value(text); };
  std::string snapshotter;
  part.text_at("snapshotter", "the name of a snapshotter", is_snapshotter, snapshotter);
  if (!snapshotter.empty()) into.snapshotter = snapshotter;
  part.path_at("shim", into.shim);
  if (into.shim && !into.shim->filename().native().starts_with(kKataShimPrefix))
    part.refuse(*part.find("shim"), "shim",
                fmt::format("the name of Kata's shim begins with {}, and by that its sandboxes are found",
                            kKataShimPrefix));
  const auto is_setting = [](std::string_view text) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos;
  };
  part.texts_at("annotations", "the name of a hypervisor's setting, such as default_memory", is_setting,
                into.annotations);
  read_configuration(part, into);
}

}  // namespace

std::string_view text(KataKind kind) {
  return word_for(kKinds, kind, "gpu");
}

std::optional<std::filesystem::path> KataArtifacts::folder() const {
  if (!url.starts_with(kFileUrl)) return std::nullopt;
  return std::filesystem::path(url.substr(kFileUrl.size())).lexically_normal();
}

std::vector<std::string> KataClass::handlers() const {
  std::vector<std::string> out = {name};
  out.insert(out.end(), aliases.begin(), aliases.end());
  return out;
}

KataClass read_kata_class(const ClassPart& part) {
  KataClass out;
  out.place = part.reader->place(*part.map);
  part.check_keys({kName, kNodeSelector, kArtifacts},
                  {"aliases", kKind, "overhead", "snapshotter", "shim", "annotations", kConfiguration});
  if (part.find(kName) == nullptr) part.refuse(*part.map, kName, "the key is missing");
  part.text_at(kName, "the name of a handler, a DNS label", is_handler_name, out.name);
  // NVIDIA's file has no key `kind`, so the name's suffix decides where there is none.
  if (out.name.ends_with("-snp")) out.kind = KataKind::snp;
  if (out.name.ends_with("-tdx")) out.kind = KataKind::tdx;

  const ClassPart selector = part.at(kNodeSelector);
  if (selector.map != nullptr) {
    out.node_selector.emplace();
    for (const ConfigMember& label : selector.map->members) {
      const std::string& name = label.key.text;
      if (!is_label_key(name)) selector.refuse(label.key, name, "this is not the name of a label");
      std::string value;
      selector.text_at(name, "the value of a label", is_label_value, value);
      out.node_selector->emplace(name, value);
    }
  }
  if (!part.is_nvidias) read_ours(part, out);
  read_artifacts(part, out.artifacts);
  return out;
}

}  // namespace ferry::kata
