// SPDX-License-Identifier: Apache-2.0
// Reads the parts of Kubernetes objects that the agent needs. Pure.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "agent/drain.h"
#include "agent/operands.h"
#include "agent/two_owners.h"
#include "common/config_tree.h"
#include "kube/field_filter.h"
#include "policy/kubernetes_files.h"

namespace ferry {

/// The fields of pods that the agent reads.
FieldChoice pod_fields();
/// The fields of DaemonSets that the agent reads: name, namespace and UID.
FieldChoice daemon_set_fields();

/// Name, labels, annotations and runtime handlers of a Node; a field of an unexpected form is empty.
NodeObject node_object_of(const nlohmann::json& node);

/// The configurations of a ConfigMap: its key config.yaml, or without that each key. Messages name a place as
/// in "ConfigMap gpus/policies, config.yaml:12".
std::vector<ConfigText> configurations_of(const nlohmann::json& config_map);

/// A sentence for each key of a ConfigMap that configurations_of() ignores.
std::vector<std::string> passed_over_of(const nlohmann::json& config_map);

std::set<std::string> uids_of(const std::map<std::string, nlohmann::json>& objects);

/// The pods that have not ended.
std::vector<PodOnNode> pods_of(const std::map<std::string, nlohmann::json>& pods,
                               const BelievedOwners& believed);

/// True if the node is cordoned.
bool is_cordoned(const nlohmann::json& node);

/// The pods that have not ended, for a drain. A static pod must name the Node, with its UID, as its owner:
/// any tenant may write the annotation alone. NodePod::kept does not consider DaemonSets.
std::vector<NodePod> node_pods_of(const std::map<std::string, nlohmann::json>& pods,
                                  const nlohmann::json& node);

/// KubeVirt's VirtualMachineInstances of the pods that have not ended, by "namespace/pod".
std::map<std::string, std::string> vmis_of(const std::map<std::string, nlohmann::json>& pods);

/// Empty: the object has no UID.
std::string uid_of(const nlohmann::json& object);

std::set<std::string> names_of(const std::map<std::string, nlohmann::json>& objects);

/// A merge patch; null: nothing changes. `unschedulable` is the new value in a Node's spec; absent:
/// unchanged.
nlohmann::json patch_of(const LabelChanges& labels, const LabelChanges& annotations,
                        std::optional<bool> unschedulable = {});

}  // namespace ferry
