// SPDX-License-Identifier: Apache-2.0
#include "cli/cluster_gather.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/agent_pod.h"
#include "cli/cluster_facts.h"
#include "cli/gathered_labels.h"
#include "cli/masked_text.h"
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

// Other programs keep whole objects in annotations (kubectl.kubernetes.io/last-applied-configuration), with
// everything in them, so only annotations of GPUs are taken.
json identity_of(const json& object) {
  const json& metadata = field(object, "metadata");
  json out = only_keys(metadata, {"name", "namespace", "creationTimestamp", "deletionTimestamp"});
  take_labels(metadata, "labels", out);
  for (const auto& [name, value] : texts_field(metadata, "annotations"))
    if (is_of_gpus(name)) out["annotations"][name] = masked_text(value);
  const json owners = each_item(metadata, "ownerReferences", [](const json& owner) {
    return only_keys(owner, {"kind", "name"});
  });
  if (!owners.empty()) out["ownerReferences"] = owners;
  return out;
}

json masked(json text) {
  return text.is_string() ? json(masked_text(text.get_ref<const std::string&>())) : std::move(text);
}

// Masks messages of conditions and events, which quote other programs.
json with_masked_messages(json object) {
  for (const char* const key : {"message", "failureReason"})
    if (const auto said = object.find(key); said != object.end()) *said = masked(std::move(*said));
  if (const auto conditions = object.find("conditions"); conditions != object.end() && conditions->is_array())
    for (json& condition : *conditions) condition = with_masked_messages(std::move(condition));
  return object;
}

json masked_arguments(const json& arguments) {
  json out = json::array();
  bool is_secret = false;
  for (const json& argument : arguments) {
    const auto* const text = argument.get_ptr<const std::string*>();
    out.push_back(is_secret ? json("***") : masked(argument));
    is_secret = text != nullptr && is_secret_option(*text);
  }
  return out;
}

// Arguments of other programs may have anything in them; Ferry's own name files and namespaces.
json container_of(const json& container, bool of_ferry) {
  json out = only_keys(container, {"name", "image", "resources", "restartPolicy"});
  if (!of_ferry || ferry_program_in(container).empty()) return out;
  for (const char* const part : {"command", "args"})
    if (container.contains(part)) out[part] = masked_arguments(field(container, part));
  return out;
}

// Messages of a state are left out. A terminated container's may be the end of its log. A waiting one's
// quotes a registry or a hook's program, with addresses and more.
json container_state_of(const json& state) {
  json out = json::object();
  if (state.contains("waiting")) out["waiting"] = only_keys(field(state, "waiting"), {"reason"});
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

// The progress of a VM's migration, without the two machines' addresses and disks.
json migration_of(const json& state) {
  return with_masked_messages(only_keys(
      state, {"mode", "completed", "failed", "failureReason", "abortRequested", "abortStatus", "sourceNode",
              "targetNode", "startTimestamp", "endTimestamp", "migrationPolicyName"}));
}

bool runs_ferry(const json& pod) {
  return std::ranges::any_of(items_field(field(pod, "spec"), "containers"),
                             [](const json& container) { return !ferry_program_in(container).empty(); });
}

bool concerns_gpus(const json& pod, bool of_ferry) {
  const auto labels = texts_field(field(pod, "metadata"), "labels");
  const auto is = [&](const char* key, std::string_view value) {
    const auto found = labels.find(key);
    return found != labels.end() && found->second == value;
  };
  const bool of_operator =
      is("app.kubernetes.io/managed-by", "gpu-operator") || is("app.kubernetes.io/part-of", "gpu-operator");
  return (of_ferry && runs_ferry(pod)) || of_operator || is("kubevirt.io", "virt-launcher") ||
         asks_for_gpus(pod);
}

class Gathering {
 public:
  explicit Gathering(const AskForPart& ask) : ask_(ask) {}

  /// Adds the selected objects under `name`. A failure becomes a note.
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

  /// Notes Ferry's real namespace if ConfigMaps and Leases of another one were read.
  void look_for_ferry(const std::string& space) {
    std::set<std::string> spaces;
    for (const json& pod : items_field(out_.document, "pods"))
      if (is_of_ferry(pod, space) && runs_ferry(pod))
        spaces.insert(text_field(field(pod, "metadata"), "namespace"));
    if (!spaces.empty() && !spaces.contains(space))
      out_.notes.push_back(fmt::format("config_maps, leases: of namespace {}; Ferry runs in {}: say -n {}",
                                       space, fmt::join(spaces, ", "), *spaces.begin()));
  }

  void take_logs(const AskForLog& ask, const std::string& space) {
    // Without the pods, Ferry's containers are not known.
    if (!out_.document.contains("pods")) return;
    std::vector<json> pods;
    std::ranges::copy_if(items_field(out_.document, "pods"), std::back_inserter(pods),
                         [&](const json& pod) { return is_of_ferry(pod, space); });
    GatheredLogs logs = gather_logs(ask, pods);
    out_.document["logs"] = std::move(logs.logs);
    out_.notes.insert(out_.notes.end(), logs.notes.begin(), logs.notes.end());
    out_.whole = out_.whole && logs.whole;
  }

  Gathered take_all() && {
    out_.document["ferry_version"] = kVersion;
    // Messages of the API server may name a machine that it could not reach.
    for (std::string& note : out_.notes) note = masked_text(note);
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
  json taken =
      with_masked_messages(only_keys(status, {"capacity", "allocatable", "conditions", "runtimeHandlers"}));
  // Takes the fields of nodeInfo that do not identify one machine.
  taken["nodeInfo"] =
      only_keys(field(status, "nodeInfo"), {"architecture", "containerRuntimeVersion", "kernelVersion",
                                            "kubeletVersion", "osImage", "operatingSystem"});
  return {{"metadata", identity_of(node)},
          {"spec", only_keys(field(node, "spec"), {"unschedulable", "taints"})},
          {"status", std::move(taken)}};
}

json gathered_pod(const json& pod, const std::string& space) {
  const bool of_ferry = is_of_ferry(pod, space);
  if (!concerns_gpus(pod, of_ferry)) return {};
  const auto taken_of = [&](const json& container) { return container_of(container, of_ferry); };
  const json& spec = field(pod, "spec");
  const json& status = field(pod, "status");
  json taken = only_keys(spec, {"nodeName", "runtimeClassName", "priorityClassName"});
  take_labels(spec, "nodeSelector", taken);
  taken["containers"] = each_item(spec, "containers", taken_of);
  taken["initContainers"] = each_item(spec, "initContainers", taken_of);
  json said =
      with_masked_messages(only_keys(status, {"phase", "reason", "message", "conditions", "startTime"}));
  said["containerStatuses"] = each_item(status, "containerStatuses", container_status_of);
  said["initContainerStatuses"] = each_item(status, "initContainerStatuses", container_status_of);
  return {{"metadata", identity_of(pod)}, {"spec", std::move(taken)}, {"status", std::move(said)}};
}

json gathered_vmi(const json& vmi) {
  const json& spec = field(vmi, "spec");
  const json& status = field(vmi, "status");
  json taken = only_keys(spec, {"evictionStrategy"});
  take_labels(spec, "nodeSelector", taken);
  taken["devices"] = only_keys(field_at(spec, {"domain", "devices"}), {"gpus", "hostDevices"});
  json said = with_masked_messages(only_keys(status, {"phase", "nodeName", "reason", "conditions"}));
  if (status.contains("migrationState")) said["migrationState"] = migration_of(status["migrationState"]);
  return {{"metadata", identity_of(vmi)}, {"spec", std::move(taken)}, {"status", std::move(said)}};
}

json gathered_kubevirt(const json& kubevirt) {
  const json& configuration = field_at(kubevirt, {"spec", "configuration"});
  json taken = only_keys(configuration, {"permittedHostDevices", "mediatedDevicesConfiguration"});
  taken["featureGates"] = field_at(configuration, {"developerConfiguration", "featureGates"});
  return {{"metadata", identity_of(kubevirt)},
          {"configuration", std::move(taken)},
          {"status", with_masked_messages(only_keys(field(kubevirt, "status"),
                                                    {"phase", "conditions", "observedKubeVirtVersion"}))}};
}

// A namespace may have ConfigMaps of other programs, so only policies and vGPU profiles are taken.
json gathered_config_map(const json& config_map) {
  json texts = json::object();
  for (const auto& [key, value] : field(config_map, "data").items()) {
    if (!value.is_string()) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (text.find("policies:") == std::string::npos && text.find("vgpu-configs:") == std::string::npos)
      continue;
    // read_policies() accepts only known keys, but any comment, so a valid text is masked. An invalid one may
    // be anything. Its error would quote it, so neither is taken; Nodes show the error where it matters.
    const auto read = read_policies({.file = key, .text = text});
    texts[key] = read ? json(masked_text(text)) : json{{"not_read", true}};
  }
  if (texts.empty()) return {};
  return {{"metadata", identity_of(config_map)}, {"data", std::move(texts)}};
}

json gathered_lease(const json& lease) {
  return {{"metadata", identity_of(lease)}, {"spec", field(lease, "spec")}};
}

json gathered_event(const json& event) {
  if (text_field(field(event, "involvedObject"), "kind") != "Node") return {};
  json taken =
      with_masked_messages(only_keys(event, {"type", "reason", "message", "count", "firstTimestamp",
                                             "lastTimestamp", "eventTime", "reportingComponent", "source"}));
  taken["node"] = text_field(field(event, "involvedObject"), "name");
  return taken;
}

Result<Gathered> gather_cluster(const AskForPart& ask, const AskForLog& ask_for_log,
                                const GatherPlace& place) {
  // A caller that may not even list Nodes, or reaches no API server, gets no archive.
  if (auto nodes = ask({.kind = kNodes}, {.most = 1}); !nodes) return fail(std::move(nodes).error());
  Gathering gathering(ask);
  gathering.take("nodes", {.kind = kNodes}, gathered_node);
  gathering.take("pods", {.kind = kPods}, [&](const json& pod) { return gathered_pod(pod, place.space); });
  gathering.take("vmis", {.kind = kVmis}, gathered_vmi);
  gathering.take("kubevirts", {.kind = kKubeVirts}, gathered_kubevirt);
  gathering.take("config_maps", {.kind = kConfigMaps, .space = place.space}, gathered_config_map);
  gathering.take("leases",
                 {.kind = kLeases, .space = place.space, .fields = {}, .labels = "gpu-ferry.io/change-slot"},
                 gathered_lease);
  gathering.take("events", {.kind = kEvents, .space = "default", .fields = "involvedObject.kind=Node"},
                 gathered_event);
  gathering.look_for_ferry(place.space);
  gathering.take_logs(ask_for_log, place.space);
  return std::move(gathering).take_all();
}

}  // namespace ferry
