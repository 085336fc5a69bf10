// SPDX-License-Identifier: Apache-2.0
// What concerns us of objects as the API server has them. Pure.
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

/// All that is read here of pods.
FieldChoice pod_fields();
/// Name, namespace and UID.
FieldChoice daemon_set_fields();

/// Its name, labels and annotations; empty where it is not as the API server makes them.
NodeObject node_object_of(const nlohmann::json& node);

/// The configurations of a ConfigMap: its key config.yaml, or else each key. Their places in messages are
/// "ConfigMap gpus/policies, config.yaml:12".
std::vector<ConfigText> configurations_of(const nlohmann::json& config_map);

/// A sentence for each of its keys that configurations_of() passes over.
std::vector<std::string> passed_over_of(const nlohmann::json& config_map);

/// The UIDs of objects.
std::set<std::string> uids_of(const std::map<std::string, nlohmann::json>& objects);

/// The pods that have not ended.
std::vector<PodOnNode> pods_of(const std::map<std::string, nlohmann::json>& pods,
                               const BelievedOwners& believed);

/// Whether nothing more is scheduled to it.
bool is_cordoned(const nlohmann::json& node);

/// The pods that have not ended, for a drain. A static pod names its node, with its UID, as its owner: the
/// annotation alone any tenant may write. NodePod::kept says nothing of DaemonSets.
std::vector<NodePod> node_pods_of(const std::map<std::string, nlohmann::json>& pods,
                                  const nlohmann::json& node);

/// The VirtualMachineInstances of KubeVirt's to which pods belong that have not ended, by "namespace/pod".
std::map<std::string, std::string> vmis_of(const std::map<std::string, nlohmann::json>& pods);

/// Empty: it has none.
std::string uid_of(const nlohmann::json& object);

std::set<std::string> names_of(const std::map<std::string, nlohmann::json>& objects);

/// A merge patch; null: there is nothing to change. `unschedulable`: what a Node's spec shall say; absent: as
/// it is.
nlohmann::json patch_of(const LabelChanges& labels, const LabelChanges& annotations,
                        std::optional<bool> unschedulable = {});

}  // namespace ferry
