// SPDX-License-Identifier: Apache-2.0
// A fleet with pods that hold its GPUs, and, on request, the operator's operands.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "agent/drain/drain_mark.h"
#include "kube/api_transport.h"
#include "tests/agent/fleet.h"

namespace ferry::test {

/// A fleet whose hostds name the pods that its API server has on their nodes.
class Yard {
 public:
  using json = nlohmann::json;
  static constexpr std::chrono::seconds kDrainTimeout{120};
  /// An operand of the operator's that is paused for a change.
  static constexpr const char* kOperand = "nvidia.com/gpu.deploy.sandbox-validator";

  explicit Yard(std::size_t nodes, std::size_t most = 1, std::uint64_t seed = 1) : fleet(nodes, most, seed) {
    fleet.drain_timeout = kDrainTimeout;
    for (const auto& machine : fleet.machines) {
      machine->way = std::make_unique<Way>(*this, *machine);
      machine->hostd.users = [this, &one = *machine] { return users(one); };
    }
  }

  void put_pod(const std::string& node, const std::string& name, const char* owner = "ReplicaSet") {
    json reference = {
        {"apiVersion", "apps/v1"}, {"kind", owner}, {"name", "d"}, {"uid", "none"}, {"controller", true}};
    if (owner == std::string("DaemonSet"))
      reference["uid"] = fleet.server
                             .put({{"apiVersion", "apps/v1"},
                                   {"kind", "DaemonSet"},
                                   {"metadata", {{"name", "d"}, {"namespace", "tenants"}}}})
                             .at("metadata")
                             .at("uid");
    put_pod_of(node, name, reference);
  }
  /// With this owner and these annotations, which its maker says.
  void put_pod_of(const std::string& node, const std::string& name, const json& owner,
                  const json& annotations = json::object()) {
    fleet.server.put({{"apiVersion", "v1"},
                      {"kind", "Pod"},
                      {"metadata",
                       {{"name", name},
                        {"namespace", "tenants"},
                        {"annotations", annotations},
                        {"ownerReferences", json::array({owner})}}},
                      {"spec", {{"nodeName", node}}},
                      {"status", {{"phase", "Running"}}}});
    tell_hostds();
  }
  static std::string path_of_pod(const std::string& name) {
    return "/api/v1/namespaces/tenants/pods/" + name;
  }
  bool has_pod(const std::string& name) const { return !fleet.server.object(path_of_pod(name)).is_null(); }
  void remove_pod(const std::string& name) {
    if (has_pod(name)) fleet.server.erase(path_of_pod(name));
    tell_hostds();
  }
  std::vector<std::string> pods() const {
    std::vector<std::string> out;
    for (const auto& [name, pod] : fleet.server.objects(kTenants))
      out.push_back(pod.at("metadata").at("name").get<std::string>());
    return out;
  }

  /// The operator is here: its pod is on each node while the node's label says true.
  void begin_operator() {
    put_daemon_set("nvidia-operator-validator");
    for (const auto& machine : fleet.machines)
      fleet.server.edit("/api/v1/nodes/" + machine->name, {{"metadata", {{"labels", {{kOperand, "true"}}}}}});
    operator_acts();
  }
  void put_daemon_set(const char* name) {
    fleet.server.put({{"apiVersion", "apps/v1"},
                      {"kind", "DaemonSet"},
                      {"metadata", {{"name", name}, {"namespace", "gpu-operator"}}}});
  }
  std::string uid_of_daemon_set(const std::string& name) const {
    const json set = fleet.server.object("/apis/apps/v1/namespaces/gpu-operator/daemonsets/" + name);
    return set.is_null() ? "none" : set["metadata"].value("uid", "");
  }
  void remove_daemon_set(const std::string& name) {
    fleet.server.erase("/apis/apps/v1/namespaces/gpu-operator/daemonsets/" + name);
  }
  std::string operand(const std::string& node) const { return fleet.text_of(node, "labels", kOperand); }
  bool has_operand(const std::string& node) const {
    return !fleet.server.object(path_of_operand(node)).is_null();
  }

  bool is_cordoned(const std::string& node) const {
    const json object = fleet.server.object("/api/v1/nodes/" + node);
    return object.value("/spec/unschedulable"_json_pointer, false);
  }
  void cordon(const std::string& node, bool cordoned) {
    fleet.server.edit("/api/v1/nodes/" + node,
                      {{"spec", {{"unschedulable", cordoned ? json(true) : json()}}}});
  }
  std::string mark(const std::string& node) const {
    return fleet.text_of(node, "annotations", api::kDrainAnnotation);
  }
  std::string cordon_mark(const std::string& node) const {
    return fleet.text_of(node, "annotations", api::kCordonedAnnotation);
  }

  void pass(std::chrono::seconds time) {
    for (std::chrono::seconds second{0}; second < time; ++second) {
      fleet.pass(std::chrono::seconds(1));
      operator_acts();
      tell_hostds();
    }
  }
  void tell_hostds() {
    for (const auto& machine : fleet.machines) {
      const std::string now = users(*machine).dump();
      if (std::exchange(known_desired_[machine->name], now) != now) machine->hostd.desired_changed();
    }
  }
  std::size_t evictions() const { return fleet.server.count("POST", "/eviction"); }

  Fleet fleet;
  std::set<std::string> with_process;  ///< nodes on which a process of the host's holds the GPU too
  bool by_name = true;                 ///< the kubelet says who; else the pod's process alone shows it

 private:
  /// What an agent sends on its way.
  class Way final : public kube::ApiTransport {
   public:
    Way(Yard& yard, Fleet::Machine& machine) : yard_(yard), machine_(machine) {}
    Call send(kube::ApiRequest request, kube::ApiListener listener) override {
      if (request.path.ends_with("/eviction")) yard_.expect_to_be_right(machine_.name, request);
      return yard_.fleet.server.send(std::move(request), std::move(listener));
    }
    void cancel(Call call) override { yard_.fleet.server.cancel(call); }

   private:
    Yard& yard_;
    Fleet::Machine& machine_;
  };

  static std::string path_of_operand(const std::string& node) {
    return "/api/v1/namespaces/gpu-operator/pods/validator-" + node;
  }
  void operator_acts() {
    for (const auto& machine : fleet.machines) {
      const std::string label = operand(machine->name);
      if (label.empty()) continue;
      const bool there = has_operand(machine->name);
      if (there && label != "true") fleet.server.erase(path_of_operand(machine->name));
      if (there || label != "true") continue;
      fleet.server.put({{"apiVersion", "v1"},
                        {"kind", "Pod"},
                        {"metadata",
                         {{"name", "validator-" + machine->name},
                          {"namespace", "gpu-operator"},
                          {"ownerReferences",
                           {{{"kind", "DaemonSet"},
                             {"name", "nvidia-sandbox-validator"},
                             {"uid", uid_of_daemon_set("nvidia-sandbox-validator")}}}}}},
                        {"spec", {{"nodeName", machine->name}}},
                        {"status",
                         {{"phase", "Running"},
                          {"containerStatuses",
                           json::array({{{"name", "c"}, {"state", {{"running", json::object()}}}}})}}}});
    }
  }

  json users(const Fleet::Machine& machine) {
    json out = json::array();
    for (const auto& [name, pod] : fleet.server.objects(kTenants)) {
      if (pod.at("spec").at("nodeName") != machine.name) continue;
      const json uid = pod.at("metadata").at("uid");
      held_[machine.name].insert(uid.get<std::string>());
      if (by_name)
        out.push_back({{"kind", "pod"}, {"name", name}, {"pid", nullptr}, {"pod_uid", nullptr}});
      else
        out.push_back({{"kind", "virtual_machine"}, {"name", "guest"}, {"pid", 7}, {"pod_uid", uid}});
    }
    if (!out.empty())
      out.push_back({{"kind", "pod"}, {"name", "(given)"}, {"pid", nullptr}, {"by_the_plugin", true}});
    if (with_process.contains(machine.name))
      out.push_back({{"kind", "process"}, {"name", "python3"}, {"pid", 9}, {"pod_uid", nullptr}});
    return out;
  }

  /// Nobody is evicted who does not hold a GPU of the node, before the node shows it, or out of turn.
  void expect_to_be_right(const std::string& node, const kube::ApiRequest& request) {
    const json eviction = json::parse(request.body);
    const auto uid = eviction.at("/deleteOptions/preconditions/uid"_json_pointer).get<std::string>();
    EXPECT_TRUE(held_[node].contains(uid)) << request.path;
    EXPECT_FALSE(eviction.at("deleteOptions").contains("gracePeriodSeconds")) << "by force";
    EXPECT_TRUE(
        std::ranges::any_of(fleet.lease_holders(), [&](const auto& lease) { return lease.second == node; }))
        << node << " has no turn";
    const auto shown = agent::read_drain_mark(mark(node));
    EXPECT_TRUE(shown && shown->since) << node << ": " << mark(node);
    const auto& hostd =
        (*std::ranges::find(fleet.machines, node, [](const auto& one) { return one->name; }))->hostd;
    // Its end is reported before its lock is released.
    EXPECT_TRUE(hostd.runs || fleet.clock.now() - hostd.stopped < std::chrono::seconds(2))
        << "nobody would take the GPUs";
  }

  inline static const kube::Selection kTenants = {.kind = kube::kPods, .space = "tenants"};
  std::map<std::string, std::string> known_desired_;
  std::map<std::string, std::set<std::string>> held_;  ///< UIDs, by node
};

}  // namespace ferry::test
