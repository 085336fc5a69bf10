// SPDX-License-Identifier: Apache-2.0
// The lists that `kubectl ferry` reads from an API server. It writes nothing.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include "common/result.h"
#include "common/text/json.h"
#include "kube/paged_list.h"
#include "kubectl/cluster_facts.h"

namespace ferry::kubectl {

// Parts of JSON objects from outside, which may have any shape. A part that is absent or of another kind
// reads as null, empty or false.

/// json_at() of each key in turn.
const nlohmann::json& field_at(const nlohmann::json& object, std::initializer_list<std::string_view> keys);
/// A string as one line that a terminal can show (visible_text.h).
std::string text_field(const nlohmann::json& object, std::string_view key);
/// "NAMESPACE/NAME" of a Kubernetes object
std::string full_name(const nlohmann::json& object);
bool flag_field(const nlohmann::json& object, std::string_view key);
/// The values that are strings.
std::map<std::string, std::string> texts_field(const nlohmann::json& object, std::string_view key);
/// The keys that exist, with everything below them.
nlohmann::json only_keys(const nlohmann::json& object, std::initializer_list<std::string_view> keys);
/// `taken` of each item of a list; empty: it is no list.
nlohmann::json each_item(const nlohmann::json& object, std::string_view key,
                         const std::function<nlohmann::json(const nlohmann::json&)>& taken);
/// Empty: it is no list.
const std::vector<nlohmann::json>& items_field(const nlohmann::json& object, std::string_view key);

/// Reads Nodes and the pods with GPUs that have not ended. `names`: of the Nodes; none: all. `labels`: a
/// selector of Nodes; empty: any. Errors: those of `ask`; Errc::not_found: there is no node of a name.
Result<ClusterObjects> read_cluster(const kube::AskForPart& ask, const std::vector<std::string>& names = {},
                                    const std::string& labels = {});

/// Adds KubeVirt's VMs. A cluster without KubeVirt has none; a role that hides them becomes a note. Errors:
/// those of `ask`.
Result<> read_vmis(const kube::AskForPart& ask, ClusterObjects& objects);

/// Adds the ResourceClaims that have devices of Ferry's driver. A server without them has none; a role that
/// hides them becomes a note. Errors: those of `ask`.
Result<> read_claims(const kube::AskForPart& ask, ClusterObjects& objects);

/// Reads one node and its pods that have not ended. Errc::not_found: there is no such node.
Result<ClusterObjects> read_cluster_node(const kube::AskForPart& ask, const std::string& node);

/// Reads a VirtualMachineInstance as it is. Errc::not_found: there is none.
Result<nlohmann::json> read_vmi(const kube::AskForPart& ask, const std::string& space,
                                const std::string& name);

/// Reads the KubeVirt objects. Empty: the cluster has no KubeVirt. Absent: the role hides them. Errors: those
/// of `ask`.
Result<std::optional<std::vector<nlohmann::json>>> read_kubevirts(const kube::AskForPart& ask);

}  // namespace ferry::kubectl
