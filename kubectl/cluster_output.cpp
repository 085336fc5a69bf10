// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "api/labels.h"
#include "cli/output/table.h"
#include "cli/output/text_output.h"
#include "common/text/json.h"
#include "common/text/words.h"
#include "kubectl/cluster_verbs.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

json to_json(const GpuUser& user) {
  using Kind = GpuUser::Kind;
  constexpr Words<Kind, 3> kWords = {{{"vm", Kind::vm}, {"kata_pod", Kind::kata}, {"pod", Kind::pod}}};
  auto devices = json::array();
  for (const GivenDevice& device : user.devices)
    devices.push_back({{"resource", device.resource}, {"id", device.id}, {"health", or_null(device.health)}});
  return {{"kind", word_for(kWords, user.kind)},
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
  json out = {{"name", node.name},
              {"ready", node.ready},
              {"cordoned", node.cordoned},
              {"state", or_null(node.state)},
              {"last_changed", or_null(node.last_changed)},
              {"asked_for", or_null(node.asked_for)},
              {"last_error", or_null(node.last_error)},
              {"vgpu_config_state", or_null(node.vgpu_state)},
              {"drain", or_null(node.drain)},
              {"kata_error", or_null(node.kata_error)},
              {"kata_handlers", node.kata_handlers},
              {"resources", std::move(resources)}};
  for (const ClaimedDevice& one : node.claims)
    out["claims"].push_back({{"namespace", one.space},
                             {"name", one.claim},
                             {"request", one.request},
                             {"device", one.device},
                             {"pods", one.pods}});
  return out;
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
  out["status_command"] = or_null(node.status_command);
  out["notes"] = cluster.notes;
  return out;
}

json vms_document(const ClusterGpus& cluster) {
  auto vms = json::array();
  for (const GpuUser& user : cluster.users)
    if (user.kind != GpuUser::Kind::pod) vms.push_back(to_json(user));
  return {{"vms", std::move(vms)}, {"notes", cluster.notes}};
}

namespace {

using Columns = std::optional<std::size_t>;
using Now = std::optional<std::int64_t>;

// The time since the agent's last change: "40s", "12m", "3h" or "5d"; empty: not known.
std::string age_text(const ClusterNode& node, Now now) {
  if (!now || !node.last_changed || node.state.empty() || *node.last_changed > *now) return {};
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 60 * kMinute;
  constexpr std::int64_t kDay = 24 * kHour;
  const std::int64_t age = *now - *node.last_changed;
  if (age < 2 * kMinute) return fmt::format("{}s", age);
  if (age < 2 * kHour) return fmt::format("{}m", age / kMinute);
  if (age < 2 * kDay) return fmt::format("{}h", age / kHour);
  return fmt::format("{}d", age / kDay);
}

std::string spaced(std::string words) {
  std::ranges::replace(words, '_', ' ');
  return words;
}

std::string state_text(const ClusterNode& node) {
  std::string out = node.state.empty() ? "no Ferry" : spaced(node.state);
  if (!node.ready) out += "\nnode not ready";
  if (node.cordoned) out += "\ncordoned";
  return out;
}

std::string asked_text(const ClusterNode& node) {
  const std::string workload = agent::value_of(node.labels, api::kWorkloadLabel);
  std::string out = node.asked_for.empty() ? "nothing by its own labels" : node.asked_for;
  if (!workload.empty() && !agent::parse_workload(workload))
    out += fmt::format(" ({} is no workload)", workload);
  if (is_kept_off(node.labels)) return out + "; gpu-ferry.io/deploy=false keeps Ferry off";
  if (!node.asked_for.empty()) return out;
  return out +
         fmt::format("; a policy's nodeSelector or a default may count (`kubectl ferry plan {}`)", node.name);
}

std::string mode_text(const std::string& resource) {
  const auto mode = mode_by_name(resource);
  return mode ? std::string(text(*mode)) : std::string();
}

// A line for each user: "VM studio/render-a: 2 (0000:3b:00.0, 0000:5e:00.0)"; one is not counted.
std::string users_text(const ClusterGpus& cluster, const ClusterNode& node, const std::string& resource) {
  std::vector<std::string> lines;
  for (const GpuUser* user : cluster.users_of(node.name, resource)) {
    std::string& line = lines.emplace_back(user->text());
    if (const auto count = user->resources.at(resource); count > 1) line += fmt::format(": {}", count);
    std::vector<std::string> ids;
    for (const GivenDevice& device : user->devices)
      if (device.resource == resource) ids.push_back(device.id);
    if (!ids.empty()) line += fmt::format(" ({})", fmt::join(ids, ", "));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

void add_notes(std::string& out, const ClusterGpus& cluster, Columns columns) {
  for (const std::string& note : cluster.notes) out += cli::wrapped_lines("note: " + note, columns);
}

cli::Table list_table(const ClusterGpus& cluster, Now now) {
  const auto row = [now](std::string node, std::string state, std::string age,
                         std::vector<std::string> of_resource) {
    std::vector<std::string> out = {std::move(node), std::move(state)};
    if (now) out.push_back(std::move(age));
    out.insert(out.end(), of_resource.begin(), of_resource.end());
    return out;
  };
  cli::Table table(row("NODE", "STATE", "CHANGED", {"RESOURCE", "MODE", "USED", "BY"}));
  for (const ClusterNode& node : cluster.nodes) {
    if (node.resources.empty())
      table.add(row(node.name, state_text(node), age_text(node, now), {"", "", "", ""}));
    bool first = true;
    for (const auto& [name, resource] : node.resources) {
      // "1 of 2"; if the kubelet lists more than are allocatable, "1 of 2, 1 not well" or "1 of 2, 1 held
      // back". A device that became unhealthy in use is used and not allocatable: "1 used, 0 allocatable, 1
      // not well".
      std::string used = resource.used > resource.allocatable
                             ? fmt::format("{} used\n{} allocatable", resource.used, resource.allocatable)
                             : fmt::format("{} of {}", resource.used, resource.allocatable);
      if (resource.unwell() > 0) used += fmt::format("\n{} not well", resource.unwell());
      if (resource.held_back > 0) used += fmt::format("\n{} held back", resource.held_back);
      table.add(row(first ? node.name : " ", first ? state_text(node) : " ",
                    first ? age_text(node, now) : " ",
                    {name, mode_text(name), std::move(used), users_text(cluster, node, name)}));
      first = false;
    }
  }
  return table;
}

}  // namespace

std::string list_text(const ClusterGpus& cluster, Columns columns, Now now) {
  std::string out = cluster.nodes.empty() ? "no node advertises GPUs, and no label names any\n"
                                          : list_table(cluster, now).text(columns);
  for (const ClusterNode& node : cluster.nodes)
    for (const ClaimedDevice& one : node.claims)
      out += cli::wrapped_lines(fmt::format("{}: {}", node.name, one.text()), columns);
  for (const ClusterNode& node : cluster.nodes) {
    if (!node.last_error.empty())
      out += cli::wrapped_lines(fmt::format("{}: {}", node.name, node.last_error), columns);
    if (!node.kata_error.empty())
      out += cli::wrapped_lines(fmt::format("{}: Kata: {}", node.name, node.kata_error), columns);
    if (!node.drain.empty())
      out += cli::wrapped_lines(fmt::format("{}: drain: {}", node.name, node.drain), columns);
  }
  add_notes(out, cluster, columns);
  return out;
}

std::string node_text(const ClusterGpus& cluster, const ClusterNode& node, Columns columns, Now now) {
  std::string out;
  const auto say = [&](const char* what, const std::string& text) {
    if (!text.empty()) out += cli::wrapped_lines(fmt::format("{}: {}", what, text), columns);
  };
  say("node", node.name + (node.ready ? "" : ", not ready") + (node.cordoned ? ", cordoned" : ""));
  say("asked for", asked_text(node));
  const std::string age = age_text(node, now);
  say("state", node.state.empty() ? "none: no agent of Ferry has reported it" : spaced(node.state));
  say("last changed", age.empty() ? "" : age + " ago by the agent");
  say("last error", node.last_error);
  say("vGPU configuration", node.vgpu_state);
  say("drain", node.drain);
  say("Kata error", node.kata_error);
  say("Kata handlers", fmt::format("{}", fmt::join(node.kata_handlers, ", ")));
  if (node.resources.empty()) {
    out += "it advertises no GPUs\n";
  } else {
    cli::Table table({"RESOURCE", "MODE", "CAPACITY", "ALLOCATABLE", "USED", "BY"});
    for (const auto& [name, resource] : node.resources)
      table.add({name, mode_text(name), fmt::format("{}", resource.capacity),
                 fmt::format("{}", resource.allocatable), fmt::format("{}", resource.used),
                 users_text(cluster, node, name)});
    out += table.text(columns);
  }
  for (const ClaimedDevice& one : node.claims) out += cli::wrapped_lines(one.text(), columns);
  // A command with line breaks could not be pasted.
  if (!node.status_command.empty()) out += fmt::format("each GPU: {}\n", node.status_command);
  add_notes(out, cluster, columns);
  return out;
}

std::string vms_text(const ClusterGpus& cluster, Columns columns) {
  bool none = true;
  cli::Table table({"NAME", "KIND", "NODE", "GPUS", "DEVICES"});
  for (const GpuUser& user : cluster.users) {
    if (user.kind == GpuUser::Kind::pod) continue;
    none = false;
    const std::string kind(text(user.kind));
    std::vector<std::string> gpus;
    for (const auto& [name, count] : user.resources) gpus.push_back(fmt::format("{} x {}", count, name));
    for (const std::string& claim : user.claims) gpus.push_back("claim " + claim);
    std::vector<std::string> devices;
    for (const GivenDevice& device : user.devices) {
      const bool well = device.health.empty() || device.health == "Healthy";
      devices.push_back(well ? device.id : fmt::format("{} ({})", device.id, device.health));
    }
    table.add({user.space + "/" + user.name, user.phase.empty() ? kind : kind + "\n" + user.phase, user.node,
               fmt::format("{}", fmt::join(gpus, "\n")), fmt::format("{}", fmt::join(devices, "\n"))});
  }

  std::string out = none ? "no VM has a GPU, or asks for one\n" : table.text(columns);
  add_notes(out, cluster, columns);
  return out;
}

}  // namespace ferry::kubectl
