// SPDX-License-Identifier: Apache-2.0
// Reads the parts of Kubernetes objects that the agent needs. Only NamedDaemonSets sends requests.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "agent/node_refusals.h"
#include "agent/operator_compat/operands.h"
#include "agent/operator_compat/two_owners.h"
#include "common/config/config_tree.h"
#include "common/pinned.h"
#include "kube/api_client.h"
#include "kube/field_filter.h"
#include "kube/timers.h"
#include "policy/kubernetes_files.h"

namespace ferry::agent {

// Asks the API server for the DaemonSets that pods name as their owners, as `kubectl drain` does. Any tenant
// may write an owner into a pod, and a drain leaves the pods of DaemonSets alone.

/// Only one thread may use it. While no relevant pod names a DaemonSet, there is neither a request nor a
/// timer.
class NamedDaemonSets : Pinned {
 public:
  /// `changed` is called, never from within a call, when kept_because() may differ or ask() is due. The
  /// references must outlive this object.
  NamedDaemonSets(kube::ApiClient& client, kube::Timers& timers, std::function<void()> changed);
  ~NamedDaemonSets();

  /// Asks for the owners that were not asked for lately, and forgets all others.
  void ask(const std::set<NamedOwner>& owners);

  /// Why a pod of this owner is not evicted: the DaemonSet exists, or its absence is not confirmed yet.
  /// Empty: the pod's namespace has no DaemonSet of that name and UID.
  std::string kept_because(const NamedOwner& owner) const;

 private:
  struct Asked {
    std::optional<kube::ApiClient::Call> call = {};
    Moment again = {};
    std::optional<bool> exists = {};  ///< absent: the server has not answered
    std::string trouble = {};         ///< error of the last request
  };

  void ask_for(const NamedOwner& owner, Asked& asked);
  void answered(const NamedOwner& owner, Asked& asked, const Result<nlohmann::json>& object);

  kube::ApiClient& client_;
  kube::Timers& timers_;
  const std::function<void()> changed_;
  std::map<NamedOwner, Asked> asked_;
  kube::OwnedTimer timer_;
};

/// The fields of pods that the agent reads.
kube::FieldChoice pod_fields();
/// The fields of DaemonSets that the agent reads: name, namespace and UID.
kube::FieldChoice daemon_set_fields();

/// Name, labels, annotations and runtime handlers of a Node; a field of an unexpected form is empty.
policy::NodeObject node_object_of(const nlohmann::json& node);

/// The configurations of a ConfigMap: its key config.yaml, or without that each key. Messages name a place as
/// in "ConfigMap gpus/policies, config.yaml:12".
std::vector<ConfigText> configurations_of(const nlohmann::json& config_map);

/// A sentence for each key of a ConfigMap that configurations_of() ignores.
std::vector<std::string> passed_over_of(const nlohmann::json& config_map);

/// The pods that have not ended. `node` shows which are static: such a pod must name the Node, with its UID,
/// as its owner, since any tenant may write the annotation alone. Null: none counts as static.
/// PodOnNode::kept does not consider DaemonSets.
std::vector<PodOnNode> pods_of(const std::map<std::string, nlohmann::json>& pods,
                               const BelievedOwners& believed, const nlohmann::json* node = nullptr);

/// True if the node is cordoned.
bool is_cordoned(const nlohmann::json& node);

/// KubeVirt's VirtualMachineInstances of the pods that have not ended, by "namespace/pod".
std::map<std::string, std::string> vmis_of(const std::map<std::string, nlohmann::json>& pods);

/// Empty: the object has no UID.
std::string uid_of(const nlohmann::json& object);

/// The texts of a field in the metadata of all objects, "name" or "uid".
std::set<std::string> metadata_of(const std::map<std::string, nlohmann::json>& objects, const char* field);

/// A merge patch of a Node; null: nothing changes.
nlohmann::json patch_of(const NodePatchContent& changes);

}  // namespace ferry::agent
