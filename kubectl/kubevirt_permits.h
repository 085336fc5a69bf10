// SPDX-License-Identifier: Apache-2.0
// KubeVirt's object and `kubectl ferry kubevirt-cr`: the resources that the object permits, those that nodes
// offer, and the change between the two.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.h"
#include "kubectl/cluster_facts.h"
#include "kubevirt-plugin/discovery/resource_class.h"

namespace ferry::kubectl {

/// spec.configuration.permittedHostDevices of a KubeVirt object; null: everything is permitted.
const nlohmann::json& permitted_devices(const nlohmann::json& kubevirt);

/// The resources that a KubeVirt object permits; true: another program than KubeVirt serves it. Absent:
/// everything is permitted.
std::optional<std::map<std::string, bool>> permitted_by(const nlohmann::json& kubevirt);

/// True if KubeVirt removes mediated devices that it does not know. The gate DisableMDEVConfiguration counts
/// if `enabled` is not set.
bool removes_vgpus(const nlohmann::json& kubevirt);
/// Says that KubeVirt permits everything, and yet removes this resource's vGPUs if they are mediated devices.
/// Empty: it does not.
std::string unlisted_vgpus(const nlohmann::json& kubevirt, std::string_view resource);
inline constexpr const char* kUnlistedVgpusCure =
    "set mediatedDevicesConfiguration.enabled: false, or begin permittedHostDevices with all resources that "
    "the cluster's VMs use (what is not in it is then forbidden)";

/// `list`: featureGates or disabledFeatureGates of a KubeVirt object.
bool has_gate(const nlohmann::json& kubevirt, std::string_view list, std::string_view gate);
/// True: KubeVirt 1.9 or newer, by the object's own word. Absent: it does not say.
std::optional<bool> is_1_9_or_newer(const nlohmann::json& kubevirt);

// `kubectl ferry kubevirt-cr`: the resources that nodes advertise to VMs, and whether KubeVirt permits them.

struct PermittedResource {
  std::string name;
  std::vector<std::string> nodes;  ///< that advertise it
  bool listed = false;
  bool by_others = false;  ///< marked as served by another program
  bool permitted() const { return listed && by_others; }
};
std::vector<PermittedResource> permitted_resources(const ClusterGpus& cluster,
                                                   const nlohmann::json& kubevirt);
nlohmann::json permitted_document(const std::vector<PermittedResource>& resources);
/// `kubevirt`: the object that the hint names.
std::string permitted_text(const std::vector<PermittedResource>& resources, const nlohmann::json& kubevirt,
                           std::optional<std::size_t> columns);

// `kubectl ferry kubevirt-cr --device-classes`: the chart's dra.deviceClasses.more for all devices that the
// nodes publish for claims.

struct PublishedClasses {
  std::vector<plugin::ResourceClass> classes;  ///< sorted, each once
  std::vector<std::string> notes;              ///< devices that are left out, and why
};

/// The names follow the options of the node's plugin, as its pod has them. `slices`: the ResourceSlices of
/// Ferry's driver. `plugins`: the pods of plugins; a node without one gets the names of the first.
PublishedClasses published_classes(const std::vector<nlohmann::json>& slices,
                                   const std::vector<nlohmann::json>& plugins);

// `kubectl ferry kubevirt-cr --check`: compares the cluster's KubeVirt object with the devices that a node
// offers. ABI: kubevirt.io/v1 KubeVirt, spec.configuration.permittedHostDevices and
// mediatedDevicesConfiguration (KubeVirt v1.9.0).

/// Differences between the cluster's object and the needs of a node.
struct PermitChange {
  /// Entries to add, or to mark as served by an external device plugin; a sentence each.
  std::vector<std::string> lacks;
  /// Differences that a person has to resolve; a sentence each, with advice.
  std::vector<std::string> by_hand;
  /// Facts worth knowing that are no fault.
  std::vector<std::string> notes;
  /// The merge patch that resolves `lacks`; null: nothing to do. A merge patch replaces whole lists. So these
  /// are the object's own lists with the new entries in them: every other entry stays.
  nlohmann::json patch;

  bool fits() const { return lacks.empty() && by_hand.empty(); }
};

/// `kubevirt` is the cluster's object; `ours` is the output of `ferry kubevirt-cr -o json`.
///
/// An object without permittedHostDevices permits everything, and a new list would forbid all other devices.
/// So nothing is added then. Only mediated devices need the list, since KubeVirt removes unlisted ones; that
/// is `by_hand`.
///
/// A list of another field manager (`kubectl apply`, a GitOps tool) is not changed either: that manager would
/// revert the change while VMs run. Its missing entries are `by_hand`.
///
/// Errors: Errc::malformed_host: an argument is no such object; the message names the wrong key.
Result<PermitChange> permit_change(const nlohmann::json& kubevirt, const nlohmann::json& ours);

/// The differences for people. `name`: "NAMESPACE/NAME" of the object.
std::string change_text(const std::string& name, const PermitChange& change);

/// The output of `ferry kubevirt-cr -o json` in a file; "-" is standard input. Errors: those of the file;
/// Errc::usage: it is something else.
Result<nlohmann::json> read_offered(const std::string& file);

}  // namespace ferry::kubectl
