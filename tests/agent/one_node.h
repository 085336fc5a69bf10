// SPDX-License-Identifier: Apache-2.0
// A cluster of one node: an API server in memory, an agent, a hostd that answers its files, and an operator
// whose pods come and go by the node's labels. Hours pass in milliseconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/desired_state/written_policy.h"
#include "agent/node_agent.h"
#include "api/files.h"
#include "api/labels.h"
#include "api/serving.h"
#include "hostfs/host_fs.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "tests/agent/hostd_standin.h"
#include "tests/support/api_server.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/virtual_clock.h"

namespace ferry::test {

inline constexpr const char* kNode = "/api/v1/nodes/n1";
inline constexpr const char* kValidator = "nvidia.com/gpu.deploy.sandbox-validator";
inline constexpr const char* kVfioManager = "nvidia.com/gpu.deploy.vfio-manager";
inline constexpr const char* kPod = "/api/v1/namespaces/gpu-operator/pods/validator";
inline constexpr const char* kPolicies =
    "version: v2\npolicies:\n"
    "  given: [{devices: all, mode: passthrough}]\n"
    "  kept: [{devices: all, mode: host}]\n"
    "  divided: [{devices: all, mode: vgpu, vgpu-devices: {L40S-12Q: 4}}]\n";

/// A cluster of one node.
class OneNode {
 public:
  using json = nlohmann::json;
  explicit OneNode(std::uint64_t seed = 1) : server(clock, seed), random_(seed) {
    server.put({{"apiVersion", "v1"},
                {"kind", "Node"},
                {"metadata", {{"name", "n1"}, {"labels", {{"kubernetes.io/hostname", "n1"}}}}}});
    configure(kPolicies);
  }
  void configure(const std::string& text) {
    server.put({{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", {{"name", "ferry"}, {"namespace", "gpus"}}},
                {"data", {{"config.yaml", text}}}});
  }
  void start_agent() {
    agent = std::make_unique<agent::NodeAgent>(
        host, *transport, clock, [this] { return server.draw(); }, [this] { return clock.wall(); }, settings);
    EXPECT_TRUE(agent->begin());
  }
  void kill_agent() { agent.reset(); }

  void label(const std::string& key, const json& value) {
    server.edit(kNode, {{"metadata", {{"labels", {{key, value}}}}}});
  }
  std::map<std::string, std::string> labels() const {
    const json node = server.object(kNode);
    return node.at("metadata").value("labels", std::map<std::string, std::string>());
  }
  std::string label(const std::string& key) const {
    const auto all = labels();
    const auto found = all.find(key);
    return found == all.end() ? "there is none" : found->second;
  }
  std::string annotation(const char* key) const {
    const json node = server.object(kNode);
    const auto all = node.at("metadata").value("annotations", std::map<std::string, std::string>());
    const auto found = all.find(key);
    return found == all.end() ? "" : found->second;
  }
  std::string desired() const {
    const auto desired_state = agent::read_written(host.read_file(api::kDesiredFile).value_or(""));
    return desired_state ? desired_state->policy : "nothing";
  }
  /// Why the device plugin shall offer nothing, as hostd reads it.
  std::string standby() const {
    const auto text = host.read_file("var/lib/ferry/serving.json");
    return text ? api::read_serving_file(*text).value_or("cannot be read") : std::string();
  }
  std::set<std::string> reasons() const {
    std::set<std::string> out;
    for (const auto& [name, event] : server.objects({.kind = kube::kEvents, .space = "default"}))
      out.insert(event.at("reason").get<std::string>());
    return out;
  }

  /// The operator's DaemonSet: its pod is on the node while the label says true.
  void put_validator() {
    label(kValidator, "true");
    operator_acts();
  }
  void operator_acts() {
    const bool desired_policy = label(kValidator) == "true";
    const bool there = !server.object(kPod).is_null();
    if (desired_policy && !there) put_pod("gpu-operator", "validator", "nvidia-sandbox-validator");
    if (!desired_policy && there && label(kValidator) != "there is none") server.erase(kPod);
  }
  std::string uid_of_daemon_set(const std::string& name) {
    const json set = server.object("/apis/apps/v1/namespaces/gpu-operator/daemonsets/" + name);
    return set.is_null() ? "none" : set["metadata"].value("uid", "");
  }
  void put_pod(const char* space, const char* name, const char* daemon_set, bool runs = true) {
    const json state = runs ? json({{"running", json::object()}}) : json({{"waiting", json::object()}});
    server.put({{"apiVersion", "v1"},
                {"kind", "Pod"},
                {"metadata",
                 {{"name", name},
                  {"namespace", space},
                  {"ownerReferences",
                   {{{"kind", "DaemonSet"}, {"name", daemon_set}, {"uid", uid_of_daemon_set(daemon_set)}}}}}},
                {"spec", {{"nodeName", "n1"}}},
                {"status",
                 {{"phase", runs ? "Running" : "Pending"},
                  {"containerStatuses", json::array({{{"name", "c"}, {"state", state}}})}}}});
  }
  void put_daemon_set(const char* name) {
    server.put({{"apiVersion", "apps/v1"},
                {"kind", "DaemonSet"},
                {"metadata", {{"name", name}, {"namespace", "gpu-operator"}}}});
  }
  /// Time passes, the operator looking every few seconds.
  void pass(std::chrono::seconds time) {
    const auto end = clock.now() + time;
    while (clock.now() < end) {
      clock.run_for(std::min<kube::Timers::Clock::duration>(std::chrono::seconds(3), end - clock.now()));
      operator_acts();
    }
  }

  agent::AgentSettings settings = {.node = "n1",
                                   .space = "gpus",
                                   .config_maps = {"ferry"},
                                   .config_files = {},
                                   .operator_space = "gpu-operator",
                                   .owner_spaces = {"kube-system"},
                                   .defaults = {},
                                   .drain_timeout = {}};
  VirtualClock clock;
  ApiServer server;
  kube::ApiTransport* transport = &server;  ///< the way there
  ScratchDirectory scratch;
  HostFs host{scratch.path()};
  std::unique_ptr<agent::NodeAgent> agent;
  HostdStandin hostd{clock, host, [this] {
                       if (agent) agent->host_changed();
                     }};

 private:
  std::mt19937_64 random_;
};

/// Looked at while time passes: hostd hears of what the agent writes, as inotify would tell it.
class AgentLoop : public testing::Test {
 protected:
  void pass(std::chrono::seconds time) {
    const auto end = cluster.clock.now() + time;
    bool looks = true;  // what the test itself has done is seen after the first second
    while (cluster.clock.now() < end) {
      const auto left = end - cluster.clock.now();
      looks = cluster.clock.run_for(std::min<kube::Timers::Clock::duration>(std::chrono::seconds(1), left)) ||
              looks;
      if (!std::exchange(looks, false)) continue;
      cluster.operator_acts();
      notify_hostd();
    }
  }
  /// Time passes, and somebody acts whenever anything has happened.
  void pass(std::chrono::seconds time, const std::function<void()>& act) {
    for (auto second = std::chrono::seconds(0); second < time; ++second) {
      cluster.clock.run_until(
          [&] {
            act();
            return false;
          },
          std::chrono::seconds(1));
      cluster.operator_acts();
      notify_hostd();
    }
  }
  /// Within a minute the Node says that state.
  bool becomes(const std::string& state) {
    for (int second = 0; second < 60 && cluster.label(api::kStateLabel) != state; ++second)
      pass(std::chrono::seconds(1));
    return cluster.label(api::kStateLabel) == state;
  }
  /// As by a SIGTERM.
  bool leaves_within(std::chrono::seconds time) {
    cluster.agent->leave([this] { left_ = true; });
    return cluster.clock.run_until([this] { return left_; }, time);
  }
  void notify_hostd() {
    const std::string now = cluster.host.read_file(api::kDesiredFile).value_or("");
    if (std::exchange(known_desired_, now) != now) cluster.hostd.desired_changed();
  }

  OneNode cluster;
  bool left_ = false;  ///< the agent has said so

 private:
  std::string known_desired_;
};

/// All that is asked for below such a path.
inline std::function<std::optional<ApiFault>(const kube::ApiRequest&)> forbids(const char* part) {
  return [part](const kube::ApiRequest& request) {
    return request.path.find(part) == std::string::npos
               ? std::nullopt
               : std::optional(ApiFault::status_of(403, "Forbidden"));
  };
}

}  // namespace ferry::test
