// SPDX-License-Identifier: Apache-2.0
// Several nodes of one cluster: an API server in memory, and on each node an agent and what stands for hostd.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/desired_state/written_policy.h"
#include "agent/node_agent.h"
#include "agent/operator_compat/operands.h"
#include "agent/rollout/rollout.h"
#include "agent/rollout/rollout_leases.h"
#include "api/files.h"
#include "api/labels.h"
#include "hostfs/host_fs.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "tests/agent/hostd_standin.h"
#include "tests/support/api_server.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/virtual_clock.h"

namespace ferry::test {

class Fleet {
 public:
  using json = nlohmann::json;
  struct Machine {
    Machine(Fleet& fleet, std::string its_name)
        : name(std::move(its_name)), host(scratch.path()), hostd(fleet.clock, host, [this, &fleet] {
            if (agent) agent->host_changed();
            fleet.look();
          }) {
      hostd.by_text = true;
    }

    std::string name;
    ScratchDirectory scratch;
    HostFs host;
    std::unique_ptr<kube::ApiTransport> way;  ///< the agent's to the server; null: the server itself
    std::unique_ptr<agent::NodeAgent> agent;
    HostdStandin hostd;
    std::chrono::seconds skew{0};  ///< of its clock on the wall
    std::string known_desired;     ///< the desired.json that hostd knows of
  };

  Fleet(std::size_t nodes, std::size_t most_changing, std::uint64_t seed = 1)
      : server(clock, seed), most_changing_(most_changing) {
    configure(1);
    for (std::size_t i = 0; i < nodes; ++i) {
      machines.push_back(std::make_unique<Machine>(*this, fmt::format("n{}", i)));
      server.put({{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", machines.back()->name}}}});
    }
  }

  /// Policies given, kept and divided; what divided says is another with each edition.
  void configure(int edition) {
    server.put({{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", {{"name", "ferry"}, {"namespace", "gpus"}}},
                {"data",
                 {{"config.yaml",
                   fmt::format("version: v2\npolicies:\n"
                               "  given: [{{devices: all, mode: passthrough}}]\n"
                               "  kept: [{{devices: all, mode: host}}]\n"
                               "  divided: [{{devices: all, mode: vgpu, vgpu-devices: {{L40S-12Q: {}}}}}]\n",
                               edition)}}}});
  }
  void start(Machine& machine) {
    agent::AgentSettings settings;
    settings.node = machine.name;
    settings.space = "gpus";
    settings.config_maps = {"ferry"};
    settings.operator_space = "gpu-operator";
    settings.most_changing = most_changing_;
    settings.drain_timeout = drain_timeout;
    if (adjust) adjust(machine, settings);
    machine.agent = std::make_unique<agent::NodeAgent>(
        machine.host, machine.way ? *machine.way : server, clock, [this] { return server.draw(); },
        [this, &machine] { return clock.wall() + machine.skew; }, std::move(settings));
    EXPECT_TRUE(machine.agent->begin());
  }
  void start() {
    for (const auto& machine : machines) start(*machine);
  }
  /// As by a SIGTERM. Gives how long its agent took, which has a minute.
  std::chrono::seconds end(Machine& machine) {
    std::chrono::seconds took{0};
    bool left = false;
    machine.agent->leave([&left] { left = true; });
    for (; !left && took < std::chrono::seconds(61); ++took) pass(std::chrono::seconds(1));
    EXPECT_TRUE(left) << machine.name;
    machine.agent.reset();
    return took;
  }
  void label(const std::string& node, const json& policy) {
    server.edit("/api/v1/nodes/" + node, {{"metadata", {{"labels", {{api::kPolicyLabel, policy}}}}}});
  }
  void label_all(const json& policy) {
    for (const auto& machine : machines) label(machine->name, policy);
  }

  std::string text_of(const std::string& node, const char* part, const char* key) const {
    const json object = server.object("/api/v1/nodes/" + node);
    const auto all = object.at("metadata").value(part, std::map<std::string, std::string>());
    const auto found = all.find(key);
    return found == all.end() ? "" : found->second;
  }
  std::string state(const std::string& node) const { return text_of(node, "labels", api::kStateLabel); }
  std::string error(const std::string& node) const {
    return text_of(node, "annotations", api::kErrorAnnotation);
  }
  std::size_t in_state(const std::string& word) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(machines, [&](const auto& machine) { return state(machine->name) == word; }));
  }
  std::set<std::string> reasons(const std::string& node) const {
    std::set<std::string> out;
    for (const auto& [name, event] : server.objects({.kind = kube::kEvents, .space = "default"}))
      if (event.at("involvedObject").at("name") == node) out.insert(event.at("reason").get<std::string>());
    return out;
  }
  static std::string lease_path(std::size_t index) {
    return kube::path_of(agent::rollout_lease_ref("gpus", index)).value_or("");
  }
  /// The nodes that have a rollout lease, by its index.
  std::map<std::size_t, std::string> lease_holders() const {
    std::map<std::size_t, std::string> out;
    for (const auto& [name, lease] : server.objects(agent::rollout_lease_objects("gpus"))) {
      const auto rollout_lease = agent::rollout_lease_of(lease);
      if (rollout_lease && !rollout_lease->holder.empty()) out[rollout_lease->index] = rollout_lease->holder;
    }
    return out;
  }
  agent::CanaryResults results() const {
    agent::CanaryResults out;
    for (const auto& [name, lease] : server.objects(agent::rollout_lease_objects("gpus")))
      agent::read_canary_results(lease, out);
    return out;
  }
  std::size_t under_way() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(machines, [](const auto& machine) { return machine->hostd.under_way; }));
  }
  void look() { most_seen = std::max(most_seen, under_way()); }

  void pass(std::chrono::seconds time) {
    for (const auto end = clock.now() + time; clock.now() < end;) {
      clock.run_for(std::min<kube::Timers::Clock::duration>(std::chrono::seconds(1), end - clock.now()));
      for (const auto& machine : machines) {
        const std::string now = machine->host.read_file(api::kDesiredFile).value_or("");
        if (std::exchange(machine->known_desired, now) != now) machine->hostd.desired_changed();
        if (each_second) each_second(*machine);
      }
    }
  }

  VirtualClock clock;
  ApiServer server;
  std::vector<std::unique_ptr<Machine>> machines;
  std::size_t most_seen = 0;  ///< nodes that were changing at once
  std::optional<std::chrono::seconds> drain_timeout;
  std::function<void(Machine&, agent::AgentSettings&)> adjust;  ///< what an agent is started with
  std::function<void(Machine&)> each_second;

 private:
  std::size_t most_changing_;
};

}  // namespace ferry::test
