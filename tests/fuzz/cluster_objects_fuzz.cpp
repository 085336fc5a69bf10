// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "kubectl/cluster_verbs.h"
#include "tests/fuzz/fuzz.h"

// What an API server lists, and what people and machines would be shown of it.
void ferry::fuzz::one_input(std::string_view text) {
  const auto lists = nlohmann::json::parse(text, nullptr, false);
  kubectl::ClusterObjects objects;
  const auto take = [&](const char* key, std::vector<nlohmann::json>& to) {
    if (!lists.is_object() || !lists.contains(key) || !lists[key].is_array()) return;
    for (const auto& object : lists[key]) to.push_back(object);
  };
  take("nodes", objects.nodes);
  take("pods", objects.pods);
  take("vmis", objects.vmis);
  const kubectl::ClusterGpus cluster = kubectl::cluster_gpus(objects);
  std::string shown = kubectl::list_text(cluster, 80) + kubectl::vms_text(cluster, 80);
  for (const kubectl::ClusterNode& node : cluster.nodes) {
    shown += kubectl::node_text(cluster, node, 80);
    require(!node.name.empty(), "a node has a name");
    require(kubectl::node_document(cluster, node).is_object(), "a node is an object");
  }
  for (const char c : shown)
    require(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F),
            "no control sequence reaches a terminal");
  require(kubectl::list_document(cluster).is_object() && kubectl::vms_document(cluster).is_object(),
          "documents are objects");
  kubectl::cluster_checks(objects, objects.vmis);
  for (const auto& object : objects.pods) {
    kubectl::gathered_pod(object, "ferry");
    kubectl::gathered_node(object);
    kubectl::gathered_config_map(object);
    kubectl::gathered_event(object);
  }
}
