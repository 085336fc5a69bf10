// SPDX-License-Identifier: Apache-2.0
#include "kubectl/cluster_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "agent/desired_state/desired_state.h"
#include "agent/drain/drain_mark.h"
#include "api/labels.h"
#include "common/text/visible_text.h"
#include "common/text/words.h"
#include "dra/names.h"
#include "kubectl/agent_pod.h"
#include "kubectl/cluster_reader.h"
#include "policy/accelerators.h"
#include "policy/kubernetes_files.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::kubectl {
namespace {

using nlohmann::json;

// Labels of a node that has GPUs, even if no plugin serves them: the gpu-operator's, and Node Feature
// Discovery's about NVIDIA's devices.
constexpr std::array<std::string_view, 4> kGpuSigns = {
    "nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present", "feature.node.kubernetes.io/pci-0302_10de.present"};
constexpr std::string_view kOwnWords = "gpu-ferry.io/";

/// True for a name of pci.ids in upper case, and for a device's ID, which it has if pci.ids has no name for
/// it. A virtual function may have "_VF" after either.
bool is_devices_name(std::string_view name) {
  constexpr std::size_t kDigits = 4;
  constexpr std::string_view kFunction = "_VF";
  if (name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == std::string_view::npos)
    return !name.empty();
  if (name.ends_with(kFunction)) name.remove_suffix(kFunction.size());
  return name.size() == kDigits && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Reads a whole number, with the one suffix that the API server itself writes for one ("2k" for 2000).
std::uint64_t count_of(const json& quantity) {
  constexpr std::uint64_t kThousand = 1'000;
  if (quantity.is_number_unsigned()) return quantity.get<std::uint64_t>();
  if (!quantity.is_string()) return 0;
  const auto& text = quantity.get_ref<const std::string&>();
  std::uint64_t number = 0;
  const char* const all = text.data() + text.size();
  const auto [end, fault] = std::from_chars(text.data(), all, number);
  if (fault != std::errc()) return 0;
  if (end == all) return number;
  const bool thousands = end + 1 == all && *end == 'k';
  return thousands && number <= std::numeric_limits<std::uint64_t>::max() / kThousand ? number * kThousand
                                                                                      : 0;
}

void add(ResourceCounts& to, const ResourceCounts& more) {
  for (const auto& [name, count] : more) to[name] += count;
}

ResourceCounts gpus_in(const json& quantities) {
  ResourceCounts out;
  if (!quantities.is_object()) return out;
  for (const auto& [name, quantity] : quantities.items()) {
    const std::uint64_t count = is_gpu_resource(name) ? count_of(quantity) : 0;
    if (count > 0) out[visible_line(name)] = count;
  }
  return out;
}

// The limits: an extended resource's request equals its limit.
ResourceCounts source(const json& container) {
  return gpus_in(field_at(container, {"resources", "limits"}));
}

// Counts as the scheduler does. Containers run together with the init containers that stay. Other init
// containers run before them, one at a time, and their devices are used again.
ResourceCounts asked_by_pod(const json& pod) {
  const json& spec = json_at(pod, "spec");
  ResourceCounts together;
  for (const json& container : items_field(spec, "containers")) add(together, source(container));
  ResourceCounts stays;
  ResourceCounts most;
  for (const json& container : items_field(spec, "initContainers")) {
    ResourceCounts asked = source(container);
    if (text_field(container, "restartPolicy") == "Always") {
      add(stays, asked);
      continue;
    }
    add(asked, stays);
    for (const auto& [name, count] : asked) most[name] = std::max(most[name], count);
  }
  add(together, stays);
  for (const auto& [name, count] : most) together[name] = std::max(together[name], count);
  return together;
}

std::vector<GivenDevice> devices_of(const json& pod) {
  std::vector<GivenDevice> out;
  std::set<std::pair<std::string, std::string>> seen;  // init containers' devices may come again
  for (const char* const kind : {"containerStatuses", "initContainerStatuses"}) {
    for (const json& container : items_field(json_at(pod, "status"), kind)) {
      for (const json& given : items_field(container, "allocatedResourcesStatus")) {
        const std::string resource = text_field(given, "name");
        if (!is_gpu_resource(resource)) continue;
        for (const json& device : items_field(given, "resources")) {
          const std::string id = text_field(device, "resourceID");
          if (!id.empty() && seen.emplace(resource, id).second)
            out.push_back({.resource = resource, .id = id, .health = text_field(device, "health")});
        }
      }
    }
  }
  return out;
}

bool has_ended(const json& object) {
  const std::string phase = text_field(json_at(object, "status"), "phase");
  return phase == "Succeeded" || phase == "Failed";
}

/// `handlers`: Kata's runtime handlers.
std::optional<GpuUser> user_of(const json& pod, const std::set<std::string>& handlers) {
  if (has_ended(pod)) return std::nullopt;
  GpuUser user;
  user.resources = asked_by_pod(pod);
  if (user.resources.empty()) return std::nullopt;
  // ABI: Kubernetes 1.34, PodExtendedResourceClaimStatus. No device plugin has a part in these.
  for (const json& mapping :
       items_field(field_at(pod, {"status", "extendedResourceClaimStatus"}), "requestMappings"))
    if (const std::string name = text_field(mapping, "resourceName"); user.resources.erase(name) > 0)
      user.by_claim.insert(name);
  const json& metadata = json_at(pod, "metadata");
  const json& spec = json_at(pod, "spec");
  user.space = text_field(metadata, "namespace");
  user.name = user.pod = text_field(metadata, "name");
  user.node = text_field(spec, "nodeName");
  user.phase = text_field(json_at(pod, "status"), "phase");
  user.runtime_class = text_field(spec, "runtimeClassName");
  user.devices = devices_of(pod);
  std::string vmi;
  for (const json& owner : items_field(metadata, "ownerReferences"))
    if (vmi.empty() && text_field(owner, "kind") == "VirtualMachineInstance") vmi = text_field(owner, "name");
  if (!vmi.empty()) {
    user.kind = GpuUser::Kind::vm;
    user.name = vmi;
  } else if (handlers.contains(user.runtime_class) || user.runtime_class.find("kata") != std::string::npos) {
    // Ferry's RuntimeClasses have the names of their handlers. Others have "kata" in their names.
    user.kind = GpuUser::Kind::kata;
  }
  return user;
}

/// The GPUs that a VM without a pod asks for; absent: none.
std::optional<GpuUser> user_of_vmi(const json& vmi) {
  const json& metadata = json_at(vmi, "metadata");
  GpuUser user{.kind = GpuUser::Kind::vm,
               .space = text_field(metadata, "namespace"),
               .name = text_field(metadata, "name"),
               .node = text_field(json_at(vmi, "status"), "nodeName"),
               .phase = text_field(json_at(vmi, "status"), "phase")};
  const json& devices = field_at(vmi, {"spec", "domain", "devices"});
  for (const char* const kind : {"gpus", "hostDevices"}) {
    for (const json& device : items_field(devices, kind)) {
      const std::string resource = text_field(device, "deviceName");
      if (is_gpu_resource(resource)) ++user.resources[resource];
    }
  }
  // A claim among the host devices is left out: only its driver knows whether it is for a GPU.
  for (const json& gpu : items_field(devices, "gpus"))
    if (const std::string claim = text_field(gpu, "claimName"); !claim.empty())
      user.claims.push_back(claim + "/" + text_field(gpu, "requestName"));
  if (user.resources.empty() && user.claims.empty()) return std::nullopt;
  return user;
}

std::vector<GpuUser> users_in(const ClusterObjects& objects) {
  std::set<std::string> handlers;  // of Kata, which Ferry's labels of any node name
  const std::string_view prefix = api::kKataPrefix;
  for (const json& node : objects.nodes)
    for (const auto& [name, value] : texts_field(json_at(node, "metadata"), "labels"))
      if (name.starts_with(prefix)) handlers.insert(name.substr(prefix.size()));

  std::vector<GpuUser> out;
  for (const json& pod : objects.pods)
    if (auto user = user_of(pod, handlers)) out.push_back(std::move(*user));
  for (const json& vmi : objects.vmis) {
    auto of_vmi = user_of_vmi(vmi);
    if (!of_vmi) continue;
    bool has_pod = false;
    for (GpuUser& user : out) {
      if (user.kind != GpuUser::Kind::vm || user.space != of_vmi->space || user.name != of_vmi->name)
        continue;
      has_pod = true;
      user.phase = of_vmi->phase;
      user.claims = of_vmi->claims;
    }
    if (!has_pod && !has_ended(vmi)) out.push_back(std::move(*of_vmi));
  }
  std::ranges::sort(out, {}, [](const GpuUser& user) { return std::tie(user.space, user.name, user.pod); });
  return out;
}

// The desired state as far as labels express it. The agent has its own defaults (docs/agent.md), and takes an
// unknown workload for none.
std::string asked_for(const std::map<std::string, std::string>& labels) {
  const auto value = [&](const char* key) {
    const auto found = labels.find(key);
    return found == labels.end() ? std::string() : found->second;
  };
  if (const auto policy = value(api::kPolicyLabel); !policy.empty()) return "policy " + policy;
  if (value(api::kOperandsLabel) == "false") return "to be left as it is";
  auto word = value(api::kWorkloadLabel);
  const auto workload = agent::parse_workload(word);
  const auto vgpus = value(policy::kVgpuConfigLabel);
  if (workload == agent::Workload::vm_vgpu)
    return word + ", " + (vgpus.empty() ? "default vGPU configuration" : "vGPU configuration " + vgpus);
  if (workload) return word;
  return vgpus.empty() ? std::string() : "vGPU configuration " + vgpus;
}

// The server's record of the manager that owns the state's label. Null: there is none.
const json& state_manager(const json& node) {
  static const json kNone;
  const std::string label = std::string("f:") + api::kStateLabel;
  for (const json& manager : items_field(json_at(node, "metadata"), "managedFields")) {
    const json& labels = field_at(manager, {"fieldsV1", "f:metadata", "f:labels"});
    if (labels.is_object() && labels.contains(label)) return manager;
  }
  return kNone;
}

bool speaks_of_gpus(std::string_view label) {
  return std::ranges::find(kGpuSigns, label) != kGpuSigns.end() || label.starts_with(kOwnWords) ||
         label.starts_with(kGpuResources);
}

ClusterNode node_of(const json& object) {
  const json& metadata = json_at(object, "metadata");
  const auto labels = texts_field(metadata, "labels");
  const json& annotations = json_at(metadata, "annotations");
  const json& status = json_at(object, "status");
  ClusterNode node;
  node.name = text_field(metadata, "name");
  for (const json& condition : items_field(status, "conditions")) {
    if (text_field(condition, "type") != "Ready") continue;
    node.ready = text_field(condition, "status") == "True";
    break;
  }
  node.cordoned = flag_field(json_at(object, "spec"), "unschedulable");
  node.cordoned_by_ferry = node.cordoned && text_field(annotations, api::kCordonedAnnotation) == "true";
  node.asked_for = asked_for(labels);
  std::tm time{};
  const std::string changed = text_field(state_manager(object), "time");  // "2026-11-27T20:05:55Z"
  const char* const end = ::strptime(changed.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end != nullptr && *end == 'Z') node.last_changed = ::timegm(&time);
  node.last_error = text_field(annotations, api::kErrorAnnotation);
  node.kata_error = text_field(annotations, api::kKataErrorAnnotation);
  if (const std::string drain = text_field(annotations, api::kDrainAnnotation); !drain.empty()) {
    const auto mark = agent::read_drain_mark(drain);
    node.drain = !mark         ? "by an annotation that is not the agent's"
                 : mark->since ? "pods are evicted"
                               : "failed: " + mark->failed;
  }

  for (const auto& [name, value] : labels) {
    if (name == api::kStateLabel) node.state = value;
    if (name == api::kVgpuStateLabel) node.vgpu_state = value;
    if (name.starts_with(api::kKataPrefix) && value == "ready")
      node.kata_handlers.push_back(name.substr(std::string_view(api::kKataPrefix).size()));
    if (speaks_of_gpus(name)) node.labels.emplace(name, value);
  }

  // A resource that no plugin serves any more stays in the Node with 0 until it is edited.
  for (const auto& [name, count] : gpus_in(json_at(status, "capacity")))
    node.resources[name].capacity = count;
  for (const auto& [name, count] : gpus_in(json_at(status, "allocatable")))
    node.resources[name].allocatable = count;
  return node;
}

/// A vGPU has an IOMMU group of its own, and a container's GPU is in none.
bool may_share_a_group(const std::string& resource) {
  const auto mode = mode_by_name(resource);
  return mode != policy::Mode::vgpu && mode != policy::Mode::host;
}

// Companions hold no device back: else an unhealthy GPU would look held back while a VM has another GPU and
// that GPU's audio. Neither do GPUs of another vendor, whose names have another domain.
void mark_held_back(std::map<std::string, NodeResource>& resources) {
  const auto domain = [](const std::string& name) { return name.substr(0, name.find('/')); };
  std::map<std::string, std::uint64_t> used;
  for (const auto& [name, resource] : resources) {
    // The name of a GPU's audio or USB function by pci.ids. A pod that has such a function has its GPU, too.
    const bool is_companions_name = name.find("_AUDIO_") != std::string::npos ||
                                    name.find("_USB_") != std::string::npos ||
                                    name.find("_UCSI_") != std::string::npos;
    if (may_share_a_group(name) && !is_companions_name) used[domain(name)] += resource.used;
  }
  for (auto& [name, resource] : resources) {
    if (!may_share_a_group(name) || resource.capacity <= resource.allocatable) continue;
    const std::uint64_t missing = resource.capacity - resource.allocatable;
    if (missing + resource.used <= used[domain(name)]) resource.held_back = missing;
  }
}

const std::vector<json>& results_of_claim(const json& claim) {
  return items_field(field_at(claim, {"status", "allocation", "devices"}), "results");
}

/// The devices of Ferry's driver. A pool is "NODE/gpu-ferry".
std::vector<ClaimedDevice> devices_of_claims(const std::vector<json>& claims) {
  std::vector<ClaimedDevice> out;
  for (const json& claim : claims) {
    const json& metadata = json_at(claim, "metadata");
    std::vector<std::string> pods;
    for (const json& user : items_field(json_at(claim, "status"), "reservedFor"))
      if (text_field(user, "resource") == "pods") pods.push_back(text_field(user, "name"));
    for (const json& result : results_of_claim(claim)) {
      if (text_field(result, "driver") != dra::kDriver) continue;
      const std::string pool = text_field(result, "pool");
      out.push_back({.node = pool.substr(0, pool.find('/')),
                     .device = text_field(result, "device"),
                     .space = text_field(metadata, "namespace"),
                     .claim = text_field(metadata, "name"),
                     .request = text_field(result, "request"),
                     .pods = pods});
    }
  }
  std::ranges::sort(out, {},
                    [](const ClaimedDevice& one) { return std::tie(one.space, one.claim, one.device); });
  return out;
}

}  // namespace

bool is_gpu_resource(std::string_view resource) {
  const std::size_t slash = resource.find('/');
  if (slash == std::string_view::npos || slash + 1 == resource.size()) return false;
  if (resource.starts_with(kGpuResources)) return true;
  return is_devices_name(resource.substr(slash + 1)) &&
         std::ranges::any_of(policy::named_vendors(), [&](const policy::NamedVendor& vendor) {
           return resource.substr(0, slash) == fmt::format("{}.com", vendor.name);
         });
}

std::string_view text(GpuUser::Kind kind) {
  using Kind = GpuUser::Kind;
  constexpr Words<Kind, 3> kWords = {{{"VM", Kind::vm}, {"Kata pod", Kind::kata}, {"pod", Kind::pod}}};
  return word_for(kWords, kind);
}

std::string GpuUser::text() const {
  return fmt::format("{} {}/{}", ferry::kubectl::text(kind), space, name);
}

std::string ClaimedDevice::text() const {
  std::string out = fmt::format("claim {}/{}: {}", space, claim, device);
  if (!pods.empty()) out += fmt::format(", for pod {}", fmt::join(pods, ", "));
  return out;
}

std::vector<const GpuUser*> ClusterGpus::users_of(const std::string& node,
                                                  const std::string& resource) const {
  std::vector<const GpuUser*> out;
  for (const GpuUser& user : users)
    if (user.is_on(node) && user.resources.contains(resource)) out.push_back(&user);
  return out;
}

ClusterGpus cluster_gpus(const ClusterObjects& objects) {
  ClusterGpus out{.nodes = {}, .users = users_in(objects), .notes = objects.notes};
  std::map<std::string, std::map<std::string, std::string>> commands;  // by node and namespace
  for (const json& pod : objects.pods)
    if (std::string command = status_command_in(pod); !command.empty())
      commands[text_field(json_at(pod, "spec"), "nodeName")].emplace(
          text_field(json_at(pod, "metadata"), "namespace"), std::move(command));
  const std::vector<ClaimedDevice> claimed = devices_of_claims(objects.claims);
  for (const json& object : objects.nodes) {
    ClusterNode node = node_of(object);
    // An object without a name is no Node, and would get every pod that is on no node.
    if (node.name.empty()) continue;
    for (const GpuUser& user : out.users) {
      if (!user.is_on(node.name)) continue;
      for (const auto& [resource, count] : user.resources) node.resources[resource].used += count;
    }
    mark_held_back(node.resources);
    for (const ClaimedDevice& device : claimed)
      if (device.node == node.name) node.claims.push_back(device);
    if (const auto found = commands.find(node.name); found != commands.end() && found->second.size() == 1)
      node.status_command = found->second.begin()->second;
    out.nodes.push_back(std::move(node));
  }
  std::ranges::sort(out.nodes, {}, &ClusterNode::name);
  return out;
}

void drop_nodes_without_gpus(ClusterGpus& cluster) {
  const auto speaks = [](const auto& label) {
    const bool sign = std::ranges::find(kGpuSigns, label.first) != kGpuSigns.end();
    return sign ? label.second == "true" : !label.second.empty();
  };
  std::erase_if(cluster.nodes, [&](const ClusterNode& node) {
    return node.resources.empty() && node.claims.empty() && std::ranges::none_of(node.labels, speaks);
  });
}

bool is_kept_off(const std::map<std::string, std::string>& labels) {
  const auto label = labels.find("gpu-ferry.io/deploy");
  return label != labels.end() && label->second == "false";
}

bool asks_for_gpus(const json& pod) {
  return !asked_by_pod(pod).empty();
}

json counted_node(const json& node) {
  const json& metadata = json_at(node, "metadata");
  json identity = only_keys(metadata, {"name"});
  identity["annotations"] =
      only_keys(json_at(metadata, "annotations"),
                {api::kErrorAnnotation, api::kKataErrorAnnotation, api::kDrainAnnotation});
  for (const auto& [name, value] : texts_field(metadata, "labels"))
    if (speaks_of_gpus(name)) identity["labels"][name] = value;
  if (const json& manager = state_manager(node); !manager.is_null()) {
    json own = only_keys(manager, {"time"});
    own["fieldsV1"]["f:metadata"]["f:labels"][std::string("f:") + api::kStateLabel] = json::object();
    identity["managedFields"] = json::array({std::move(own)});
  }
  json said = json::object();
  // The kubelet writes the time of its last heartbeat into each condition, every five minutes or sooner.
  for (const json& condition : items_field(json_at(node, "status"), "conditions"))
    if (text_field(condition, "type") == "Ready")
      said["conditions"].push_back(only_keys(condition, {"type", "status"}));
  for (const char* const list : {"capacity", "allocatable"})
    said[list] = gpus_in(field_at(node, {"status", list}));
  return {{"metadata", std::move(identity)},
          {"spec", only_keys(json_at(node, "spec"), {"unschedulable"})},
          {"status", std::move(said)}};
}

json counted_pod(const json& pod) {
  if (!asks_for_gpus(pod)) return {};
  const json& spec = json_at(pod, "spec");
  const json& status = json_at(pod, "status");
  json asked = only_keys(spec, {"nodeName", "runtimeClassName"});
  json said = only_keys(status, {"phase"});
  for (const char* const list : {"containers", "initContainers"})
    asked[list] = each_item(spec, list, [](const json& container) {
      return only_keys(container, {"resources", "restartPolicy"});
    });
  for (const char* const list : {"containerStatuses", "initContainerStatuses"})
    said[list] = each_item(status, list, [](const json& container) {
      return only_keys(container, {"allocatedResourcesStatus"});
    });
  return {{"metadata", only_keys(json_at(pod, "metadata"), {"name", "namespace", "ownerReferences"})},
          {"spec", std::move(asked)},
          {"status", std::move(said)}};
}

json counted_vmi(const json& vmi) {
  if (!user_of_vmi(vmi)) return {};
  const json& devices = field_at(vmi, {"spec", "domain", "devices"});
  return {{"metadata", only_keys(json_at(vmi, "metadata"), {"name", "namespace"})},
          {"spec", {{"domain", {{"devices", only_keys(devices, {"gpus", "hostDevices"})}}}}},
          {"status", only_keys(json_at(vmi, "status"), {"nodeName", "phase"})}};
}

json counted_claim(const json& claim) {
  auto results = json::array();
  for (const json& result : results_of_claim(claim))
    if (text_field(result, "driver") == dra::kDriver)
      results.push_back(only_keys(result, {"driver", "pool", "device", "request"}));
  if (results.empty()) return {};
  json said = only_keys(json_at(claim, "status"), {"reservedFor"});
  said["allocation"]["devices"]["results"] = std::move(results);
  return {{"metadata", only_keys(json_at(claim, "metadata"), {"name", "namespace"})},
          {"status", std::move(said)}};
}

std::optional<policy::Mode> mode_by_name(std::string_view resource) {
  if (!resource.starts_with(kGpuResources)) return std::nullopt;
  const std::string_view name = resource.substr(kGpuResources.size());
  if (name == "gpu" || name.starts_with("mig-") || name.ends_with(".shared")) return policy::Mode::host;
  if (name == "pgpu" || name == "nvswitch") return policy::Mode::passthrough;
  if (vgpu::VgpuTypeName::parse(name.substr(name.find_last_of('_') + 1))) return policy::Mode::vgpu;
  return is_devices_name(name) ? std::optional(policy::Mode::passthrough) : std::nullopt;
}

}  // namespace ferry::kubectl
