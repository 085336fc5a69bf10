// SPDX-License-Identifier: Apache-2.0
#include "kubectl/cluster_document.h"

#include <nlohmann/json.hpp>

namespace ferry::kubectl {
namespace {

using nlohmann::json;

json or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

const char* word(GpuUser::Kind kind) {
  switch (kind) {
    case GpuUser::Kind::vm:
      return "vm";
    case GpuUser::Kind::kata:
      return "kata_pod";
    case GpuUser::Kind::pod:
      break;
  }
  return "pod";
}

json to_json(const GivenDevice& device) {
  return {{"resource", device.resource}, {"id", device.id}, {"health", or_null(device.health)}};
}

json to_json(const GpuUser& user) {
  auto devices = json::array();
  for (const GivenDevice& device : user.devices) devices.push_back(to_json(device));
  return {{"kind", word(user.kind)},
          {"namespace", user.space},
          {"name", user.name},
          {"pod", or_null(user.pod)},
          {"node", or_null(user.node)},
          {"phase", or_null(user.phase)},
          {"runtime_class", or_null(user.runtime_class)},
          {"resources", user.resources},
          {"claims", user.claims},
          {"devices", std::move(devices)}};
}

json node_part(const ClusterGpus& cluster, const ClusterNode& node) {
  auto resources = json::array();
  for (const auto& [name, resource] : node.resources) {
    auto users = json::array();
    for (const GpuUser* user : cluster.users_of(node.name, name)) users.push_back(to_json(*user));
    const auto mode = mode_by_name(name);
    resources.push_back({{"name", name},
                         {"mode", mode ? json(text(*mode)) : json()},
                         {"capacity", resource.capacity},
                         {"allocatable", resource.allocatable},
                         {"used", resource.used},
                         {"users", std::move(users)}});
  }
  return {{"name", node.name},
          {"ready", node.ready},
          {"cordoned", node.cordoned},
          {"state", or_null(node.state)},
          {"asked_for", or_null(node.asked_for)},
          {"last_error", or_null(node.last_error)},
          {"vgpu_config_state", or_null(node.vgpu_state)},
          {"drain", or_null(node.drain)},
          {"kata_handlers", node.kata_handlers},
          {"resources", std::move(resources)}};
}

}  // namespace

json list_document(const ClusterGpus& cluster) {
  auto nodes = json::array();
  for (const ClusterNode& node : cluster.nodes) nodes.push_back(node_part(cluster, node));
  return {{"nodes", std::move(nodes)}, {"notes", cluster.notes}};
}

json node_document(const ClusterGpus& cluster, const ClusterNode& node) {
  json out = node_part(cluster, node);
  out["labels"] = node.labels;
  out["notes"] = cluster.notes;
  return out;
}

json vms_document(const ClusterGpus& cluster) {
  auto vms = json::array();
  for (const GpuUser& user : cluster.users)
    if (user.kind != GpuUser::Kind::pod) vms.push_back(to_json(user));
  return {{"vms", std::move(vms)}, {"notes", cluster.notes}};
}

}  // namespace ferry::kubectl
