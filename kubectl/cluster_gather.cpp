// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/labels.h"
#include "common/text/text.h"
#include "common/version.h"
#include "kube/api_error.h"
#include "kubectl/agent_pod.h"
#include "kubectl/cluster_facts.h"
#include "kubectl/cluster_reader.h"
#include "kubectl/cluster_verbs.h"
#include "kubectl/masked_text.h"
#include "policy/policy_yaml.h"

namespace ferry::kubectl {

using nlohmann::json;

namespace {

/// True: support needs a label of this key. It shows a node's GPUs, drivers, handlers, desired state, machine
/// type or zone, or a pod's owner. Other labels may have any content: clouds and installers write machine IDs
/// and addresses into them.
bool is_needed_label(std::string_view key) {
  constexpr std::array<std::string_view, 6> kDomains = {
      kGpuResources,        "feature.node.kubernetes.io/", "node-role.kubernetes.io/",
      "katacontainers.io/", "app.kubernetes.io/",          "helm.sh/"};
  // These domains have other keys, too, with UIDs of objects or the node's own name, which may be an address.
  constexpr std::array<std::string_view, 13> kKeys = {"app",
                                                      "kubernetes.io/arch",
                                                      "kubernetes.io/os",
                                                      "node.kubernetes.io/instance-type",
                                                      "topology.kubernetes.io/region",
                                                      "topology.kubernetes.io/zone",
                                                      "kubevirt.io",
                                                      "kubevirt.io/schedulable",
                                                      "kubevirt.io/nodeName",
                                                      "kubevirt.io/domain",
                                                      "kubevirt.io/vm",
                                                      "kubevirt.io/migrationTargetNodeName",
                                                      "vm.kubevirt.io/name"};
  // The value is the UUID of the machine's NVLink domain.
  if (key == "nvidia.com/gpu.clique") return false;
  return key.find("gpu-ferry.io/") != std::string_view::npos ||
         std::ranges::any_of(kDomains, [&](std::string_view domain) { return key.starts_with(domain); }) ||
         std::ranges::find(kKeys, key) != kKeys.end();
}

/// Copies the needed labels of `object[key]` to `out[key]`, masked (masked_text.h) except names of products.
/// The number of other labels goes to "KEY_left_out", if there are any.
void take_labels(const json& object, const char* key, json& out) {
  std::size_t left_out = 0;
  for (const auto& [name, value] : texts_field(object, key)) {
    if (is_needed_label(name))
      // Names of products are as long and mixed as keys, so masked_text() would hide some.
      out[key][name] = name == "nvidia.com/gpu.product" ? value : masked_text(value);
    else
      ++left_out;
  }
  if (left_out > 0) out[std::string(key) + "_left_out"] = left_out;
}

struct Log {
  kube::ObjectRef pod;
  std::string node;
  kube::LogEnd end;
  bool trouble = false;
};

std::vector<Log> logs_of(const std::vector<json>& pods) {
  std::vector<Log> out;
  for (const json& pod : pods) {
    const json& metadata = json_at(pod, "metadata");
    for (const auto& [containers, statuses] :
         {std::pair("initContainers", "initContainerStatuses"), {"containers", "containerStatuses"}}) {
      for (const json& container : items_field(json_at(pod, "spec"), containers)) {
        if (ferry_program_in(container).empty()) continue;
        const std::string name = text_field(container, "name");
        const auto& all = items_field(json_at(pod, "status"), statuses);
        const auto known =
            std::ranges::find(all, name, [](const json& one) { return text_field(one, "name"); });
        const json status = known == all.end() ? json() : *known;
        const bool restarted = json_at(status, "restartCount").is_number_unsigned() &&
                               json_at(status, "restartCount").get<std::uint64_t>() > 0;
        Log log{.pod = kube::pod_ref(text_field(metadata, "namespace"), text_field(metadata, "name")),
                .node = text_field(json_at(pod, "spec"), "nodeName"),
                .end = {.container = name, .lines = kMostLogLines},
                .trouble = restarted || !flag_field(status, "ready")};
        out.push_back(log);
        log.end.previous = true;
        if (restarted) out.push_back(std::move(log));
      }
    }
  }
  std::ranges::stable_sort(out, [](const Log& a, const Log& b) { return a.trouble && !b.trouble; });
  return out;
}

/// The last whole lines within the limits, and whether earlier lines are missing.
std::pair<std::vector<std::string>, bool> last_lines(std::string_view text) {
  std::vector<std::string> lines;
  std::size_t size = 0;
  if (text.ends_with('\n')) text.remove_suffix(1);
  while (!text.empty()) {
    const auto begin = text.rfind('\n');
    const auto line = begin == std::string_view::npos ? text : text.substr(begin + 1);
    if (lines.size() == kMostLogLines || size + line.size() > kMostOfALog) break;
    size += line.size() + 1;
    lines.emplace_back(line);
    text.remove_suffix(begin == std::string_view::npos ? text.size() : text.size() - begin);
  }
  // The kubelet was asked for kMostLogLines lines at most, so an answer of that length may have been cut.
  const bool cut = !text.empty() || lines.size() == kMostLogLines;
  std::ranges::reverse(lines);
  return {std::move(lines), cut};
}

}  // namespace

Gathered gather_logs(const AskForLog& ask, const std::vector<json>& pods) {
  Gathered out{.document = json::array(), .notes = {}};
  const std::vector<Log> logs = logs_of(pods);
  if (logs.empty())
    out.notes.emplace_back(
        "logs: no container of Ferry's is shown; of services on a node `journalctl -u 'ferry-*'` has them");

  std::size_t size = 0;
  std::size_t left_out = 0;
  std::size_t cut = 0;
  std::set<std::string> silent;  // nodes that do not answer: their other containers would wait as long
  for (const Log& log : logs) {
    if (size >= kMostOfLogs) {
      ++left_out;
      continue;
    }
    if (silent.contains(log.node)) continue;
    const auto text = ask(log.pod, log.end);
    if (!text) {
      const auto& code = text.error().code;
      // The container is gone, or has no earlier run, or has not started; its status has the reason.
      if (code == kube::ApiErrc::not_found || code == kube::ApiErrc::invalid) continue;
      out.notes.push_back("logs: " + text.error().message);
      if (code == kube::ApiErrc::forbidden) return out;
      out.whole = false;
      silent.insert(log.node);
      continue;
    }
    auto [lines, shortened] = last_lines(masked_text(*text));
    for (const std::string& line : lines) size += line.size();
    if (shortened) ++cut;
    out.document.push_back({{"namespace", log.pod.space},
                            {"pod", log.pod.name},
                            {"node", log.node},
                            {"container", log.end.container},
                            {"previous", log.end.previous},
                            {"cut", shortened},
                            {"lines", std::move(lines)}});
  }

  if (cut > 0)
    out.notes.push_back(fmt::format("logs: {} cut to the last {} lines or {} KiB", counted(cut, "log"),
                                    kMostLogLines, kMostOfALog >> 10U));
  if (left_out > 0)
    out.notes.push_back(fmt::format(
        "logs: {} left out, since all in all it would be more than {} MiB: `kubectl logs` shows them",
        counted(left_out, "log"), kMostOfLogs >> 20U));
  return out;
}

namespace {

// Other programs keep whole objects in annotations (kubectl.kubernetes.io/last-applied-configuration), with
// everything in them, so only annotations of GPUs are taken.
json identity_of(const json& object) {
  const json& metadata = json_at(object, "metadata");
  json out = only_keys(metadata, {"name", "namespace", "creationTimestamp", "deletionTimestamp"});
  take_labels(metadata, "labels", out);
  for (const auto& [name, value] : texts_field(metadata, "annotations"))
    if (name.find("gpu-ferry.io/") != std::string::npos || name.starts_with(kGpuResources))
      out["annotations"][name] = masked_text(value);
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

// Arguments of other programs may have anything in them; Ferry's own name files and namespaces.
json container_of(const json& container, bool of_ferry) {
  json out = only_keys(container, {"name", "image", "resources", "restartPolicy"});
  if (!of_ferry || ferry_program_in(container).empty()) return out;
  for (const char* const part : {"command", "args"}) {
    if (!container.contains(part)) continue;
    json& arguments = out[part] = json::array();
    bool is_secret = false;
    for (const json& argument : json_at(container, part)) {
      const auto* const text = argument.get_ptr<const std::string*>();
      arguments.push_back(is_secret ? json("***") : masked(argument));
      is_secret = text != nullptr && is_secret_option(*text);
    }
  }
  return out;
}

// Messages of a state are left out. A terminated container's may be the end of its log. A waiting one's
// quotes a registry or a hook's program, with addresses and more.
json container_status_of(const json& status) {
  json out =
      only_keys(status, {"name", "ready", "restartCount", "started", "imageID", "allocatedResourcesStatus"});
  for (const char* const key : {"state", "lastState"}) {
    const json& state = json_at(status, key);
    json& taken = out[key] = json::object();
    if (state.contains("waiting")) taken["waiting"] = only_keys(state["waiting"], {"reason"});
    if (state.contains("running")) taken["running"] = only_keys(state["running"], {"startedAt"});
    if (state.contains("terminated"))
      taken["terminated"] =
          only_keys(state["terminated"], {"reason", "exitCode", "signal", "startedAt", "finishedAt"});
  }
  return out;
}

bool runs_ferry(const json& pod) {
  return std::ranges::any_of(items_field(json_at(pod, "spec"), "containers"),
                             [](const json& container) { return !ferry_program_in(container).empty(); });
}

bool concerns_gpus(const json& pod, bool of_ferry) {
  const auto labels = texts_field(json_at(pod, "metadata"), "labels");
  const auto is = [&](const char* key, std::string_view value) {
    const auto found = labels.find(key);
    return found != labels.end() && found->second == value;
  };
  const bool of_operator =
      is("app.kubernetes.io/managed-by", "gpu-operator") || is("app.kubernetes.io/part-of", "gpu-operator");
  return (of_ferry && runs_ferry(pod)) || of_operator || is("kubevirt.io", "virt-launcher") ||
         asks_for_gpus(pod);
}

/// Adds the selected objects under `name`. A failure becomes a note.
void take(Gathered& out, const kube::AskForPart& ask, const char* name, const kube::Selection& selection,
          const std::function<json(const json&)>& taken) {
  auto objects = kube::list_by_parts(ask, selection, taken);
  if (!objects) {
    const auto code = objects.error().code;
    const bool unknown = code == kube::ApiErrc::not_found;
    out.whole = out.whole && (unknown || code == kube::ApiErrc::forbidden);
    out.notes.push_back(
        fmt::format("{}: {}", name, unknown ? "the cluster does not know them" : objects.error().message));
    return;
  }
  out.document[name] = json(std::move(*objects));
}

}  // namespace

json gathered_node(const json& node) {
  const json& status = json_at(node, "status");
  json taken =
      with_masked_messages(only_keys(status, {"capacity", "allocatable", "conditions", "runtimeHandlers"}));
  // Takes the fields of nodeInfo that do not identify one machine.
  taken["nodeInfo"] =
      only_keys(json_at(status, "nodeInfo"), {"architecture", "containerRuntimeVersion", "kernelVersion",
                                              "kubeletVersion", "osImage", "operatingSystem"});
  return {{"metadata", identity_of(node)},
          {"spec", only_keys(json_at(node, "spec"), {"unschedulable", "taints"})},
          {"status", std::move(taken)}};
}

json gathered_pod(const json& pod, const std::string& space) {
  const bool of_ferry = is_of_ferry(pod, space);
  if (!concerns_gpus(pod, of_ferry)) return {};
  const auto taken_of = [&](const json& container) { return container_of(container, of_ferry); };
  const json& spec = json_at(pod, "spec");
  const json& status = json_at(pod, "status");
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
  const json& spec = json_at(vmi, "spec");
  const json& status = json_at(vmi, "status");
  json taken = only_keys(spec, {"evictionStrategy"});
  take_labels(spec, "nodeSelector", taken);
  taken["devices"] = only_keys(field_at(spec, {"domain", "devices"}), {"gpus", "hostDevices"});
  json said = with_masked_messages(only_keys(status, {"phase", "nodeName", "reason", "conditions"}));
  // The progress of a VM's migration, without the two machines' addresses and disks.
  if (status.contains("migrationState"))
    said["migrationState"] = with_masked_messages(
        only_keys(status["migrationState"],
                  {"mode", "completed", "failed", "failureReason", "abortRequested", "abortStatus",
                   "sourceNode", "targetNode", "startTimestamp", "endTimestamp", "migrationPolicyName"}));
  return {{"metadata", identity_of(vmi)}, {"spec", std::move(taken)}, {"status", std::move(said)}};
}

json gathered_kubevirt(const json& kubevirt) {
  const json& configuration = field_at(kubevirt, {"spec", "configuration"});
  json taken = only_keys(configuration, {"permittedHostDevices", "mediatedDevicesConfiguration"});
  taken["featureGates"] = field_at(configuration, {"developerConfiguration", "featureGates"});
  return {{"metadata", identity_of(kubevirt)},
          {"configuration", std::move(taken)},
          {"status", with_masked_messages(only_keys(json_at(kubevirt, "status"),
                                                    {"phase", "conditions", "observedKubeVirtVersion"}))}};
}

// A namespace may have ConfigMaps of other programs, so only policies and vGPU profiles are taken.
json gathered_config_map(const json& config_map) {
  json texts = json::object();
  for (const auto& [key, value] : json_at(config_map, "data").items()) {
    if (!value.is_string()) continue;
    const auto& text = value.get_ref<const std::string&>();
    if (text.find("policies:") == std::string::npos && text.find("vgpu-configs:") == std::string::npos)
      continue;
    // read_policies() accepts only known keys, but any comment, so a valid text is masked. An invalid one may
    // be anything. Its error would quote it, so neither is taken; Nodes show the error where it matters.
    const auto read = policy::read_policies({.file = key, .text = text});
    texts[key] = read ? json(masked_text(text)) : json{{"not_read", true}};
  }
  if (texts.empty()) return {};
  return {{"metadata", identity_of(config_map)}, {"data", std::move(texts)}};
}

json gathered_event(const json& event) {
  if (text_field(json_at(event, "involvedObject"), "kind") != "Node") return {};
  json taken =
      with_masked_messages(only_keys(event, {"type", "reason", "message", "count", "firstTimestamp",
                                             "lastTimestamp", "eventTime", "reportingComponent", "source"}));
  taken["node"] = text_field(json_at(event, "involvedObject"), "name");
  return taken;
}

Result<Gathered> gather_cluster(const kube::AskForPart& ask, const AskForLog& ask_for_log,
                                const std::string& space) {
  // A caller that may not even list Nodes, or reaches no API server, gets no archive.
  if (auto nodes = ask({.kind = kube::kNodes}, {.most = 1}); !nodes) return fail(std::move(nodes).error());

  Gathered out{.document = json::object(), .notes = {}};
  take(out, ask, "nodes", {.kind = kube::kNodes}, gathered_node);
  take(out, ask, "pods", {.kind = kube::kPods}, [&](const json& pod) { return gathered_pod(pod, space); });
  take(out, ask, "vmis", {.kind = kube::kVmis}, gathered_vmi);
  take(out, ask, "kubevirts", {.kind = kube::kKubeVirts}, gathered_kubevirt);
  take(out, ask, "config_maps", {.kind = kube::kConfigMaps, .space = space}, gathered_config_map);
  take(out, ask, "leases",
       {.kind = kube::kLeases, .space = space, .fields = {}, .labels = api::kRolloutLeaseLabel},
       [](const json& lease) {
         return json{{"metadata", identity_of(lease)}, {"spec", json_at(lease, "spec")}};
       });
  take(out, ask, "events", {.kind = kube::kEvents, .space = "default", .fields = "involvedObject.kind=Node"},
       gathered_event);

  std::vector<json> own;
  std::set<std::string> spaces;
  for (const json& pod : items_field(out.document, "pods")) {
    if (!is_of_ferry(pod, space)) continue;
    own.push_back(pod);
    if (runs_ferry(pod)) spaces.insert(text_field(json_at(pod, "metadata"), "namespace"));
  }
  // ConfigMaps and Leases of another namespace than Ferry's were read.
  if (!spaces.empty() && !spaces.contains(space))
    out.notes.push_back(fmt::format("config_maps, leases: of namespace {}; Ferry runs in {}: say -n {}",
                                    space, fmt::join(spaces, ", "), *spaces.begin()));

  // Without the pods, Ferry's containers are not known.
  if (out.document.contains("pods")) {
    Gathered logs = gather_logs(ask_for_log, own);
    out.document["logs"] = std::move(logs.document);
    out.notes.insert(out.notes.end(), logs.notes.begin(), logs.notes.end());
    out.whole = out.whole && logs.whole;
  }

  out.document["ferry_version"] = kVersion;
  // Messages of the API server may name a machine that it could not reach.
  for (std::string& note : out.notes) note = masked_text(note);
  out.document["notes"] = out.notes;
  return out;
}

}  // namespace ferry::kubectl
