// SPDX-License-Identifier: Apache-2.0
#include "kubectl/cluster_reader.h"

#include <algorithm>
#include <utility>

#include "common/text/text.h"
#include "common/text/visible_text.h"
#include "kube/api_error.h"

namespace ferry::kubectl {

using nlohmann::json;

const json& field_at(const json& object, std::initializer_list<std::string_view> keys) {
  const json* at = &object;
  for (const std::string_view key : keys) at = &json_at(*at, key);
  return *at;
}

std::string text_field(const json& object, std::string_view key) {
  const json& value = json_at(object, key);
  return value.is_string() ? visible_line(value.get<std::string>()) : std::string();
}

std::string full_name(const json& object) {
  const json& metadata = json_at(object, "metadata");
  return text_field(metadata, "namespace") + "/" + text_field(metadata, "name");
}

bool flag_field(const json& object, std::string_view key) {
  const json& value = json_at(object, key);
  return value.is_boolean() && value.get<bool>();
}

std::map<std::string, std::string> texts_field(const json& object, std::string_view key) {
  std::map<std::string, std::string> out;
  const json& values = json_at(object, key);
  if (!values.is_object()) return out;
  for (const auto& [name, value] : values.items())
    if (value.is_string()) out.emplace(visible_line(name), visible_line(value.get<std::string>()));
  return out;
}

json only_keys(const json& object, std::initializer_list<std::string_view> keys) {
  json out = json::object();
  for (const std::string_view key : keys)
    if (const json& value = json_at(object, key); !value.is_null()) out[std::string(key)] = value;
  return out;
}

json each_item(const json& object, std::string_view key, const std::function<json(const json&)>& taken) {
  auto out = json::array();
  for (const json& item : items_field(object, key)) out.push_back(taken(item));
  return out;
}

const std::vector<json>& items_field(const json& object, std::string_view key) {
  static const std::vector<json> kNone;
  const json& value = json_at(object, key);
  return value.is_array() ? value.get_ref<const json::array_t&>() : kNone;
}

namespace {

// Reads objects of a kind that the cluster may not know. A role that hides them becomes the note `hidden`.
Result<> read_if_known(const kube::AskForPart& ask, const kube::ApiKind& kind, json (*part)(const json&),
                       std::vector<json>& into, const char* hidden, std::vector<std::string>& notes) {
  auto objects = kube::list_by_parts(ask, {.kind = kind}, part);
  if (objects) {
    into = std::move(*objects);
    return {};
  }
  const auto code = objects.error().code;
  if (code == kube::ApiErrc::not_found) return {};
  if (code != kube::ApiErrc::forbidden) return fail(std::move(objects).error());
  notes.push_back(hidden + objects.error().message);
  return {};
}

// Suggests similar names. The list of Nodes is read only here, once the node is known to be absent.
Error no_such_node(const kube::AskForPart& ask, const std::string& name) {
  std::vector<std::string> names;
  if (const auto nodes = kube::list_by_parts(ask, {.kind = kube::kNodes}, counted_node))
    for (const json& node : *nodes) names.push_back(text_field(json_at(node, "metadata"), "name"));
  return {.code = Errc::not_found,
          .message = "there is no node '" + name + "'" + did_you_mean(name, names),
          .hint = "`kubectl ferry list` shows those that have GPUs"};
}

}  // namespace

Result<> read_claims(const kube::AskForPart& ask, ClusterObjects& objects) {
  return read_if_known(ask, kube::kResourceClaims, counted_claim, objects.claims,
                       "ResourceClaims are not shown: ", objects.notes);
}

Result<> read_vmis(const kube::AskForPart& ask, ClusterObjects& objects) {
  return read_if_known(ask, kube::kVmis, counted_vmi, objects.vmis,
                       "VMs that have no pod yet are not shown: ", objects.notes);
}

Result<ClusterObjects> read_cluster(const kube::AskForPart& ask, const std::vector<std::string>& names,
                                    const std::string& labels) {
  ClusterObjects out;
  const kube::Selection chosen{.kind = kube::kNodes, .labels = labels};
  auto nodes = kube::list_by_parts(ask, chosen, counted_node);
  if (!nodes) return fail(std::move(nodes).error());
  out.nodes = std::move(*nodes);
  const auto name_of = [](const json& node) { return text_field(json_at(node, "metadata"), "name"); };
  for (const std::string& name : names)
    if (std::ranges::find(out.nodes, name, name_of) == out.nodes.end()) return fail(no_such_node(ask, name));
  if (!names.empty())
    std::erase_if(out.nodes,
                  [&](const json& node) { return std::ranges::find(names, name_of(node)) == names.end(); });

  const kube::Selection running{.kind = kube::kPods, .fields = std::string(kube::kNotEndedPods)};
  auto pods = kube::list_by_parts(ask, running, counted_pod);
  if (!pods) return fail(std::move(pods).error());
  out.pods = std::move(*pods);

  return out;
}

Result<ClusterObjects> read_cluster_node(const kube::AskForPart& ask, const std::string& node) {
  ClusterObjects out;
  // A name that no object can have is a usage error, and must not become a selector.
  if (auto path = kube::path_of(kube::node_ref(node)); !path) return fail(std::move(path).error());
  auto nodes = kube::list_by_parts(ask, kube::only(kube::node_ref(node)));
  if (!nodes) return fail(std::move(nodes).error());
  if (nodes->empty()) return fail(no_such_node(ask, node));
  out.nodes = std::move(*nodes);
  auto pods = kube::list_by_parts(ask, kube::pods_of_node(node));
  if (!pods) return fail(std::move(pods).error());
  out.pods = std::move(*pods);
  return out;
}

Result<json> read_vmi(const kube::AskForPart& ask, const std::string& space, const std::string& name) {
  const kube::ObjectRef object{.kind = kube::kVmis, .space = space, .name = name};
  if (auto path = kube::path_of(object); !path) return fail(std::move(path).error());
  auto vmis = kube::list_by_parts(ask, kube::only(object));
  const bool unknown = !vmis && vmis.error().code == kube::ApiErrc::not_found;
  if (!vmis && !unknown) return fail(std::move(vmis).error());
  if (!unknown && !vmis->empty()) return std::move(vmis->front());
  return fail(Errc::not_found,
              "there is no VirtualMachineInstance '" + space + "/" + name +
                  "': the VM is stopped, or has another name",
              "`kubectl get vm -A` lists the VMs; `virtctl start` starts one");
}

Result<std::optional<std::vector<json>>> read_kubevirts(const kube::AskForPart& ask) {
  using Kubevirts = std::optional<std::vector<json>>;
  auto objects = kube::list_by_parts(ask, {.kind = kube::kKubeVirts});
  if (objects) return Kubevirts(std::move(*objects));
  if (objects.error().code == kube::ApiErrc::not_found) return Kubevirts(std::in_place);
  if (objects.error().code == kube::ApiErrc::forbidden) return Kubevirts();
  return fail(std::move(objects).error());
}

}  // namespace ferry::kubectl
