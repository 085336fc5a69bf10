// SPDX-License-Identifier: Apache-2.0
#include "agent/cluster_objects.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "common/text/json.h"
#include "kube/api_error.h"
#include "kube/api_path.h"

namespace ferry::agent {
namespace {

using nlohmann::json;

// A deleted DaemonSet ends its pods, which the watch reports; so a rare repetition is enough.
constexpr std::chrono::seconds kAskAgain{60};

}  // namespace

NamedDaemonSets::NamedDaemonSets(kube::ApiClient& client, kube::Timers& timers, std::function<void()> changed)
    : client_(client), timers_(timers), changed_(std::move(changed)), timer_(timers) {}

NamedDaemonSets::~NamedDaemonSets() {
  ask({});
}

void NamedDaemonSets::ask(const std::set<NamedOwner>& owners) {
  for (auto& [owner, asked] : asked_)
    if (!owners.contains(owner) && asked.call) client_.cancel(*asked.call);
  std::erase_if(asked_, [&](const auto& one) { return !owners.contains(one.first); });
  for (const NamedOwner& owner : owners) {
    Asked& asked = asked_[owner];
    if (!asked.call && timers_.now() >= asked.again) ask_for(owner, asked);
  }
  if (asked_.empty()) timer_.cancel();
}

void NamedDaemonSets::ask_for(const NamedOwner& owner, Asked& asked) {
  const kube::ObjectRef set{.kind = kube::kDaemonSets, .space = owner.space, .name = owner.name};
  asked.call = client_.get(
      set,
      [this, owner](const Result<json>& object) {
        const auto found = asked_.find(owner);
        if (found == asked_.end()) return;
        answered(owner, found->second, object);
        changed_();
      },
      daemon_set_fields());
}

void NamedDaemonSets::answered(const NamedOwner& owner, Asked& asked, const Result<json>& object) {
  asked.call.reset();
  asked.again = timers_.now() + kAskAgain;
  asked.trouble.clear();
  if (object) {
    asked.exists = uid_of(*object) == owner.uid;
    return;
  }
  const Error& error = object.error();
  // Errc::usage: no object can have this name, so there is no such DaemonSet.
  if (error.code == kube::ApiErrc::not_found || error.code == Errc::usage) {
    asked.exists = false;
    return;
  }
  asked.exists.reset();
  asked.trouble = error.text();
  spdlog::warn("{}", asked.trouble);
  timer_.set(asked.again, changed_);
}

std::string NamedDaemonSets::kept_because(const NamedOwner& owner) const {
  const auto found = asked_.find(owner);
  const Asked asked = found == asked_.end() ? Asked() : found->second;
  if (asked.exists) return *asked.exists ? "it is of DaemonSet " + owner.text() : std::string();
  return fmt::format("it is not known whether its DaemonSet {} exists{}{}", owner.text(),
                     asked.trouble.empty() ? "" : ": ", asked.trouble);
}

namespace {

std::map<std::string, std::string> texts_at(const json& object, const char* key) {
  std::map<std::string, std::string> out;
  const json& values = json_at(object, key);
  if (!values.is_object()) return out;
  for (const auto& [name, value] : values.items())
    if (value.is_string()) out.emplace(name, value.get<std::string>());
  return out;
}

// NVIDIA's vGPU device manager has the same key.
constexpr const char* kUsualKey = "config.yaml";

constexpr const char* kMirror = "kubernetes.io/config.mirror";

/// The elements of a list; none if it is no list.
const std::vector<json>& elements_at(const json& object, std::string_view key) {
  static const std::vector<json> kNone;
  const auto* const list = json_at(object, key).get_ptr<const json::array_t*>();
  return list == nullptr ? kNone : *list;
}

const std::vector<json>& owners_of(const json& pod) {
  return elements_at(json_at(pod, "metadata"), "ownerReferences");
}

std::string doubt_of(const json& pod, const std::string& daemon_set, bool space_is_believed) {
  if (!is_another_program(daemon_set) && !is_an_operand(daemon_set)) return {};
  const json& metadata = json_at(pod, "metadata");
  const std::string space = text_at(metadata, "namespace");
  const std::string said = fmt::format("pod {}/{} names DaemonSet {} as its owner, which is not believed",
                                       space, text_at(metadata, "name"), daemon_set);
  if (space_is_believed) return fmt::format("{}: namespace {} has no DaemonSet of that UID", said, space);
  return fmt::format(
      "{}: tenants may write to namespace {}, as far as Ferry knows; if NVIDIA's program runs "
      "there, add the namespace to gpuOperator.ownerNamespaces (ferry-agent --owner-namespace)",
      said, space);
}

/// Sets PodOnNode::daemon_set, or `doubt`.
void read_daemon_set(const json& pod, const BelievedOwners& believed, PodOnNode& out) {
  const bool space_is_believed = believed.spaces.contains(out.space);
  // A deleted DaemonSet can be gone before its pods have ended.
  const bool listed = out.space == believed.operator_space && believed.uids.has_value() && !out.ends;
  for (const json& owner : owners_of(pod)) {
    if (text_at(owner, "kind") != kube::kDaemonSets.kind) continue;
    std::string name = text_at(owner, "name");
    if (space_is_believed && (!listed || believed.uids->contains(text_at(owner, "uid")))) {
      out.daemon_set = std::move(name);
      out.doubt.clear();
      return;
    }
    if (out.doubt.empty()) out.doubt = doubt_of(pod, name, space_is_believed);
  }
}

bool has_ended(const json& pod) {
  const std::string phase = text_at(json_at(pod, "status"), "phase");
  return phase == "Succeeded" || phase == "Failed";
}

bool runs(const json& pod) {
  return std::ranges::any_of(
      elements_at(json_at(pod, "status"), "containerStatuses"),
      [](const json& container) { return !json_at(json_at(container, "state"), "running").is_null(); });
}

bool is_owned_by(const json& owner, const kube::ApiKind& kind) {
  return text_at(owner, "kind") == kind.kind && text_at(owner, "apiVersion") == kind.api_version;
}

// Only the kubelet can end a static pod. The kubelet creates the mirror pod with the Node as its owner.
bool is_static(const json& pod, const json& node) {
  if (json_at(json_at(json_at(pod, "metadata"), "annotations"), kMirror).is_null()) return false;
  return std::ranges::any_of(owners_of(pod), [&](const json& owner) {
    return is_owned_by(owner, kube::kNodes) && !uid_of(node).empty() && text_at(owner, "uid") == uid_of(node);
  });
}

json changes_of(const LabelChanges& changes) {
  json out = json::object();
  for (const auto& [name, value] : changes) out[name] = value ? json(*value) : json();
  return out;
}

}  // namespace

kube::FieldChoice pod_fields() {
  const kube::Field owners{"ownerReferences", {{"apiVersion"}, {"kind"}, {"name"}, {"uid"}, {"controller"}}};
  const kube::Field mirror{.name = kMirror, .inner = {}, .presence = true};
  const kube::Field running{.name = "running", .inner = {}, .presence = true};
  return {.mode = kube::FieldChoice::Mode::only,
          .fields = {{"metadata",
                      {{"name"},
                       {"namespace"},
                       {"uid"},
                       {"resourceVersion"},
                       {"deletionTimestamp"},
                       {"annotations", {mirror}},
                       owners}},
                     {"status", {{"phase"}, {"containerStatuses", {{"state", {running}}}}}}}};
}

kube::FieldChoice daemon_set_fields() {
  return {.mode = kube::FieldChoice::Mode::only,
          .fields = {{"metadata", {{"name"}, {"namespace"}, {"uid"}, {"resourceVersion"}}}}};
}

policy::NodeObject node_object_of(const json& node) {
  const json& metadata = json_at(node, "metadata");
  const std::string name = text_at(metadata, "name");
  policy::NodeObject out{.file = "Node " + name,
                         .name = name,
                         .labels = texts_at(metadata, "labels"),
                         .annotations = texts_at(metadata, "annotations")};
  for (const json& handler : elements_at(json_at(node, "status"), "runtimeHandlers")) {
    const json& handler_name = json_at(handler, "name");
    if (handler_name.is_string()) out.runtime_handlers.insert(handler_name.get<std::string>());
  }
  return out;
}

std::vector<ConfigText> configurations_of(const json& config_map) {
  const json& metadata = json_at(config_map, "metadata");
  auto texts = texts_at(config_map, "data");
  if (const auto usual = texts.extract(kUsualKey)) {
    texts.clear();
    texts.emplace(usual.key(), usual.mapped());
  }
  std::vector<ConfigText> out;
  out.reserve(texts.size());
  for (auto& [key, text] : texts) {
    out.push_back({.file = fmt::format("ConfigMap {}/{}, {}", text_at(metadata, "namespace"),
                                       text_at(metadata, "name"), key),
                   .text = std::move(text)});
  }
  return out;
}

std::vector<std::string> passed_over_of(const json& config_map) {
  const json& metadata = json_at(config_map, "metadata");
  const std::string map =
      fmt::format("ConfigMap {}/{}", text_at(metadata, "namespace"), text_at(metadata, "name"));
  std::vector<std::string> out;
  const auto texts = texts_at(config_map, "data");
  for (const auto& [key, text] : texts) {
    if (texts.contains(kUsualKey) && key != kUsualKey)
      out.push_back(fmt::format("{}: key {} is passed over, since there is a key {}", map, key, kUsualKey));
  }
  const json& binary = json_at(config_map, "binaryData");
  if (!binary.is_object()) return out;
  for (const auto& [key, bytes] : binary.items())
    out.push_back(fmt::format("{}: key {} is passed over: binaryData is not read", map, key));
  return out;
}

bool is_cordoned(const json& node) {
  return json_at(json_at(node, "spec"), "unschedulable") == json(true);
}

std::vector<PodOnNode> pods_of(const std::map<std::string, json>& pods, const BelievedOwners& believed,
                               const json* node) {
  std::vector<PodOnNode> out;
  for (const auto& [name, pod] : pods) {
    if (has_ended(pod)) continue;
    const json& metadata = json_at(pod, "metadata");
    PodOnNode& read = out.emplace_back(
        PodOnNode{.name = text_at(metadata, "name"),
                  .space = text_at(metadata, "namespace"),
                  .uid = text_at(metadata, "uid"),
                  .runs = runs(pod),
                  .kept = node != nullptr && is_static(pod, *node) ? "it is a static pod" : "",
                  .ends = !text_at(metadata, "deletionTimestamp").empty()});
    read_daemon_set(pod, believed, read);

    // A DaemonSet recreates its pods even on a cordoned node. Its pods name it as their controller.
    const auto set = std::ranges::find_if(owners_of(pod), [](const json& owner) {
      return is_owned_by(owner, kube::kDaemonSets) && json_at(owner, "controller") == json(true);
    });
    if (set != owners_of(pod).end())
      read.controller = {.space = read.space, .name = text_at(*set, "name"), .uid = text_at(*set, "uid")};
  }
  return out;
}

std::map<std::string, std::string> vmis_of(const std::map<std::string, json>& pods) {
  std::map<std::string, std::string> out;
  for (const auto& [key, pod] : pods) {
    if (has_ended(pod)) continue;
    const json& metadata = json_at(pod, "metadata");
    const auto owner = std::ranges::find_if(
        owners_of(pod), [](const json& one) { return text_at(one, "kind") == "VirtualMachineInstance"; });
    const std::string vmi = owner == owners_of(pod).end() ? std::string() : text_at(*owner, "name");
    if (!vmi.empty()) out[text_at(metadata, "namespace") + "/" + text_at(metadata, "name")] = vmi;
  }
  return out;
}

std::string uid_of(const json& object) {
  return text_at(json_at(object, "metadata"), "uid");
}

std::set<std::string> metadata_of(const std::map<std::string, json>& objects, const char* field) {
  std::set<std::string> out;
  for (const auto& [name, object] : objects) out.insert(text_at(json_at(object, "metadata"), field));
  return out;
}

json patch_of(const NodePatchContent& changes) {
  json metadata = json::object();
  if (!changes.labels.empty()) metadata["labels"] = changes_of(changes.labels);
  if (!changes.annotations.empty()) metadata["annotations"] = changes_of(changes.annotations);
  json out;
  if (!metadata.empty()) out["metadata"] = std::move(metadata);
  // The API server omits a false value; null removes the field.
  if (changes.unschedulable) out["spec"]["unschedulable"] = *changes.unschedulable ? json(true) : json();
  return out;
}

}  // namespace ferry::agent
