// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_gather.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/agent_pod.h"
#include "cli/cluster_facts.h"
#include "cli/object_fields.h"
#include "common/version.h"
#include "kube/api_error.h"
#include "policy/policy_yaml.h"

namespace ferry {
namespace {

using nlohmann::json;

bool is_of_gpus(std::string_view name) {
  return name.find("gpu-ferry.io/") != std::string_view::npos || name.starts_with(kGpuResources);
}

// Others keep whole objects in annotations (kubectl.kubernetes.io/last-applied-configuration), with all in
// them.
json identity_of(const json& object) {
  const json& metadata = field(object, "metadata");
  json out = only_keys(metadata, {"name", "namespace", "labels", "creationTimestamp", "deletionTimestamp"});
  for (const auto& [name, value] : texts_field(metadata, "annotations"))
    if (is_of_gpus(name)) out["annotations"][name] = value;
  const json owners = each_item(metadata, "ownerReferences", [](const json& owner) {
    return only_keys(owner, {"kind", "name"});
  });
  if (!owners.empty()) out["ownerReferences"] = owners;
  return out;
}

// Arguments may have anything in them; Ferry's own name files and namespaces.
json container_of(const json& container) {
  json out = only_keys(container, {"name", "image", "resources", "restartPolicy"});
  if (!ferry_program_in(container).empty()) out.update(only_keys(container, {"command", "args"}));
  return out;
}

// What a program has left behind as its last words may be the end of its log.
json container_state_of(const json& state) {
  json out = json::object();
  if (state.contains("waiting")) out["waiting"] = only_keys(field(state, "waiting"), {"reason", "message"});
  if (state.contains("running")) out["running"] = only_keys(field(state, "running"), {"startedAt"});
  if (state.contains("terminated"))
    out["terminated"] =
        only_keys(field(state, "terminated"), {"reason", "exitCode", "signal", "startedAt", "finishedAt"});
  return out;
}

json container_status_of(const json& status) {
  json out =
      only_keys(status, {"name", "ready", "restartCount", "started", "imageID", "allocatedResourcesStatus"});
  for (const char* const key : {"state", "lastState"}) out[key] = container_state_of(field(status, key));
  return out;
}

bool concerns_gpus(const json& pod) {
  const auto labels = texts_field(field(pod, "metadata"), "labels");
  const auto is = [&](const char* key, std::string_view value) {
    const auto found = labels.find(key);
    return found != labels.end() && found->second == value;
  };
  const auto& containers = items_field(field(pod, "spec"), "containers");
  const bool ours = std::ranges::any_of(
      containers, [](const json& container) { return !ferry_program_in(container).empty(); });
  const bool of_operator =
      is("app.kubernetes.io/managed-by", "gpu-operator") || is("app.kubernetes.io/part-of", "gpu-operator");
  return ours || of_operator || is("kubevirt.io", "virt-launcher") || asks_for_gpus(pod);
}

class Gathering {
 public:
  explicit Gathering(const AskForPart& ask) : ask_(ask) {}

  /// Adds them under `name`; what cannot be had is a note.
  void take(const char* name, const Selection& selection, const std::function<json(const json&)>& taken) {
    auto objects = list_by_parts(ask_, selection, taken);
    if (!objects) {
      const auto code = objects.error().code;
      const bool unknown = code == ApiErrc::not_found;
      out_.whole = out_.whole && (unknown || code == ApiErrc::forbidden);
      out_.notes.push_back(
          fmt::format("{}: {}", name, unknown ? "the cluster does not know them" : objects.error().message));
      return;
    }
    out_.document[name] = json(std::move(*objects));
  }

  /// In which namespace there is more to be had, where nobody looked.
  void look_for_ferry(const std::string& space) {
    std::set<std::string> spaces;
    for (const json& pod : items_field(out_.document, "pods"))
      for (const json& container : items_field(field(pod, "spec"), "containers"))
        if (!ferry_program_in(container).empty())
          spaces.insert(text_field(field(pod, "metadata"), "namespace"));
    if (!spaces.empty() && !spaces.contains(space))
      out_.notes.push_back(fmt::format("config_maps, leases: of namespace {}; Ferry runs in {}: say -n {}",
                                       space, fmt::join(spaces, ", "), *spaces.begin()));
  }

  Gathered take_all() && {
    out_.document["ferry_version"] = kVersion;
    out_.document["notes"] = out_.notes;
    return std::move(out_);
  }

 private:
  const AskForPart& ask_;
  Gathered out_{.document = json::object(), .notes = {}};
};

}  // namespace

json gathered_node(const json& node) {
  const json& status = field(node, "status");
  json taken = only_keys(status, {"capacity", "allocatable", "conditions", "runtimeHandlers"});
  // Without what tells one machine from all others.
  taken["nodeInfo"] =
      only_keys(field(status, "nodeInfo"), {"architecture", "containerRuntimeVersion", "kernelVersion",
                                            "kubeletVersion", "osImage", "operatingSystem"});
  return {{"metadata", identity_of(node)},
          {"spec", only_keys(field(node, "spec"), {"unschedulable", "taints"})},
          {"status", std::move(taken)}};
}

json gathered_pod(const json& pod) {
  if (!concerns_gpus(pod)) return {};
  const json& spec = field(pod, "spec");
  const json& status = field(pod, "status");
  json taken = only_keys(spec, {"nodeName", "runtimeClassName", "nodeSelector", "priorityClassName"});
  taken["containers"] = each_item(spec, "containers", container_of);
  taken["initContainers"] = each_item(spec, "initContainers", container_of);
  json said = only_keys(status, {"phase", "reason", "message", "conditions", "startTime"});
  said["containerStatuses"] = each_item(status, "containerStatuses", container_status_of);
  said["initContainerStatuses"] = each_item(status, "initContainerStatuses", container_status_of);
  return {{"metadata", identity_of(pod)}, {"spec", std::move(taken)}, {"status", std::move(said)}};
}

json gathered_vmi(const json& vmi) {
  const json& spec = field(vmi, "spec");
  const json& status = field(vmi, "status");
  json taken = only_keys(spec, {"nodeSelector", "evictionStrategy"});
  taken["devices"] = only_keys(field_at(spec, {"domain", "devices"}), {"gpus", "hostDevices"});
  return {{"metadata", identity_of(vmi)},
          {"spec", std::move(taken)},
          {"status", only_keys(status, {"phase", "nodeName", "reason", "conditions", "migrationState"})}};
}

json gathered_kubevirt(const json& kubevirt) {
  const json& configuration = field_at(kubevirt, {"spec", "configuration"});
  json taken = only_keys(configuration, {"permittedHostDevices", "mediatedDevicesConfiguration"});
  taken["featureGates"] = field_at(configuration, {"developerConfiguration", "featureGates"});
  return {
      {"metadata", identity_of(kubevirt)},
      {"configuration", std::move(taken)},
      {"status", only_keys(field(kubevirt, "status"), {"phase", "conditions", "observedKubeVirtVersion"})}};
}

// Any namespace has ConfigMaps of others: only those that hold policies or vGPU profiles.
json gathered_config_map(const json& config_map) {
  json texts = json::object();
  for (const auto& [key, value] : field(config_map, "data").items()) {
    if (!value.is_string()) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (text.find("policies:") == std::string::npos && text.find("vgpu-configs:") == std::string::npos)
      continue;
    // The reader knows each key of a configuration of ours. What it cannot read may be anything, and why it
    // cannot is told with that; Nodes say it where it matters.
    const auto read = read_policies({.file = key, .text = text});
    texts[key] = read ? json(text) : json{{"not_read", true}};
  }
  if (texts.empty()) return {};
  return {{"metadata", identity_of(config_map)}, {"data", std::move(texts)}};
}

json gathered_lease(const json& lease) {
  return {{"metadata", identity_of(lease)}, {"spec", field(lease, "spec")}};
}

json gathered_event(const json& event) {
  if (text_field(field(event, "involvedObject"), "kind") != "Node") return {};
  json taken = only_keys(event, {"type", "reason", "message", "count", "firstTimestamp", "lastTimestamp",
                                 "eventTime", "reportingComponent", "source"});
  taken["node"] = text_field(field(event, "involvedObject"), "name");
  return taken;
}

Result<Gathered> gather_cluster(const AskForPart& ask, const GatherPlace& place) {
  // Whoever may not even list these, or reaches no API server, gets no archive.
  if (auto nodes = ask({.kind = kNodes}, {.most = 1}); !nodes) return fail(std::move(nodes).error());
  Gathering gathering(ask);
  gathering.take("nodes", {.kind = kNodes}, gathered_node);
  gathering.take("pods", {.kind = kPods}, gathered_pod);
  gathering.take("vmis", {.kind = kVmis}, gathered_vmi);
  gathering.take("kubevirts", {.kind = kKubeVirts}, gathered_kubevirt);
  gathering.take("config_maps", {.kind = kConfigMaps, .space = place.space}, gathered_config_map);
  gathering.take("leases",
                 {.kind = kLeases, .space = place.space, .fields = {}, .labels = "gpu-ferry.io/change-slot"},
                 gathered_lease);
  gathering.take("events", {.kind = kEvents, .space = "default", .fields = "involvedObject.kind=Node"},
                 gathered_event);
  gathering.look_for_ferry(place.space);
  return std::move(gathering).take_all();
}

}  // namespace ferry
