// SPDX-License-Identifier: Apache-2.0
// The resources that KubeVirt permits, and those that nodes advertise.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/output/table.h"
#include "cli/output/text_output.h"
#include "common/text/text.h"
#include "kubectl/cluster_reader.h"
#include "kubectl/cluster_verbs.h"

namespace ferry::kubectl {

using nlohmann::json;

std::optional<std::map<std::string, bool>> permitted_by(const json& kubevirt) {
  const json& permitted = field_at(kubevirt, {"spec", "configuration", "permittedHostDevices"});
  if (!permitted.is_object()) return std::nullopt;
  std::map<std::string, bool> out;
  for (const char* const list : {"pciHostDevices", "mediatedDevices"})
    for (const json& entry : items_field(permitted, list)) {
      bool& by_others = out[text_field(entry, "resourceName")];
      by_others = by_others || flag_field(entry, "externalResourceProvider");
    }
  return out;
}

bool has_gate(const json& kubevirt, std::string_view list, std::string_view gate) {
  const auto& gates =
      items_field(field_at(kubevirt, {"spec", "configuration", "developerConfiguration"}), list);
  return std::ranges::find(gates, json(gate)) != gates.end();
}

std::optional<bool> is_1_9_or_newer(const json& kubevirt) {
  std::string version = text_field(json_at(kubevirt, "status"), "observedKubeVirtVersion");
  if (version.starts_with('v')) version.erase(0, 1);
  const auto dot = version.find('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto first = whole_number(std::string_view(version).substr(0, dot));
  const std::string_view rest = std::string_view(version).substr(dot + 1);
  const auto second = number_at_start(rest);
  if (!first || !second) return std::nullopt;
  return *first > 1 || (*first == 1 && *second >= 9);
}

std::vector<PermittedResource> permitted_resources(const ClusterGpus& cluster, const json& kubevirt) {
  const auto permitted = permitted_by(kubevirt);
  std::map<std::string, PermittedResource> found;
  for (const ClusterNode& node : cluster.nodes) {
    for (const auto& [name, resource] : node.resources) {
      // A container's GPU needs no entry, nor does a resource that no plugin serves any more.
      if (resource.capacity == 0 || mode_by_name(name) == policy::Mode::host) continue;
      PermittedResource& one = found[name];
      one.name = name;
      one.nodes.push_back(node.name);
    }
  }
  std::vector<PermittedResource> out;
  for (auto& [name, one] : found) {
    if (!permitted) {
      one.listed = one.by_others = true;
    } else if (const auto entry = permitted->find(name); entry != permitted->end()) {
      one.listed = true;
      one.by_others = entry->second;
    }
    out.push_back(std::move(one));
  }
  return out;
}

json permitted_document(const std::vector<PermittedResource>& resources) {
  auto list = json::array();
  for (const PermittedResource& one : resources)
    list.push_back({{"name", one.name},
                    {"nodes", one.nodes},
                    {"listed", one.listed},
                    {"external_resource_provider", one.by_others},
                    {"permitted", one.permitted()}});
  return {{"resources", std::move(list)}};
}

std::string permitted_text(const std::vector<PermittedResource>& resources, const json& kubevirt,
                           std::optional<std::size_t> columns) {
  if (resources.empty()) return "no node advertises GPUs to VMs\n";
  cli::Table table({"RESOURCE", "KUBEVIRT", "NODES"});
  for (const PermittedResource& one : resources)
    table.add({one.name,
               one.permitted() ? "permitted"
               : one.listed    ? "externalResourceProvider is missing"
                               : "not listed",
               fmt::format("{}", fmt::join(one.nodes, ", "))});
  std::string out = table.text(columns);
  const auto missing = std::ranges::find_if_not(resources, &PermittedResource::permitted);
  if (missing == resources.end()) return out;
  out += cli::wrapped_lines(
      "VMs can ask only for resources that the KubeVirt object lists with externalResourceProvider: true",
      columns);
  const json& metadata = json_at(kubevirt, "metadata");
  out += cli::wrapped_lines(
      fmt::format(
          "hint: in Ferry's pod on node {} `ferry --host-root=/host kubevirt-cr` prints the entries with "
          "their selectors; add them with `kubectl edit kubevirt -n {} {}`, or by the patch of "
          "`kubectl ferry kubevirt-cr --check FILE --patch`, which keeps all other entries",
          missing->nodes.front(), text_field(metadata, "namespace"), text_field(metadata, "name")),
      columns);
  return out;
}

}  // namespace ferry::kubectl
