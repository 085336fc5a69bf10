// SPDX-License-Identifier: Apache-2.0
// The verbs of `kubectl ferry`: their output, checks, the archive of a cluster, and the plan of a change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/desired_state/desired_state.h"
#include "agent/operator_compat/operands.h"
#include "common/check.h"
#include "common/exit_status.h"
#include "common/result.h"
#include "kube/api_path.h"
#include "kube/paged_list.h"
#include "kubectl/cluster_facts.h"
#include "policy/kubernetes_files.h"

namespace ferry::kubectl {

// The output as JSON. Keys are only ever added; unknown values are null.

/// `list`: {"nodes": [...], "notes": [...]}; each resource of a node lists its users.
nlohmann::json list_document(const ClusterGpus& cluster);
/// `node`: one entry of "nodes" with its labels, and the notes.
nlohmann::json node_document(const ClusterGpus& cluster, const ClusterNode& node);
/// `vms`: {"vms": [...], "notes": [...]}: KubeVirt's VMs, and pods in Kata's VMs.
nlohmann::json vms_document(const ClusterGpus& cluster);

// The output for people. `columns` absent: no limit of width.

/// A row for each resource of each node, with its users; below the rows the faults. `now`: Unix time in
/// seconds; given, the rows also have the time since the agent last changed a label or annotation.
std::string list_text(const ClusterGpus& cluster, std::optional<std::size_t> columns,
                      std::optional<std::int64_t> now = {});
std::string node_text(const ClusterGpus& cluster, const ClusterNode& node, std::optional<std::size_t> columns,
                      std::optional<std::int64_t> now = {});
std::string vms_text(const ClusterGpus& cluster, std::optional<std::size_t> columns);

// `kubectl ferry doctor`: checks whether VMs can get a node's GPUs, as far as the API server shows it. Pure.
// Only `ferry doctor` on the node sees the host itself.

/// `objects`: a node and its pods. `kubevirts`: the cluster's KubeVirt objects; absent: they cannot be read.
/// `slices`: read_slices() of the node, `classes`: the DeviceClasses. Both count only if one of the pods runs
/// `ferry dra`.
std::vector<Check> cluster_checks(const ClusterObjects& objects,
                                  const std::optional<std::vector<nlohmann::json>>& kubevirts,
                                  const Result<std::vector<nlohmann::json>>& slices = {},
                                  const Result<std::vector<nlohmann::json>>& classes = {});

/// The nodeSelector of a VirtualMachineInstance as a label selector: "kubernetes.io/hostname=gpu-1,zone=a".
std::string node_selector_of(const nlohmann::json& vmi);

/// `kubectl ferry doctor vm`: checks why a VM has no GPU. `vmi`: the VirtualMachineInstance. `objects`: the
/// nodes of its nodeSelector, and all pods. The subject of the checks is "NAMESPACE/NAME".
std::vector<Check> vm_checks(const nlohmann::json& vmi, const ClusterObjects& objects,
                             const std::optional<std::vector<nlohmann::json>>& kubevirts);

// `kubectl ferry gather`: the facts about a cluster that support needs, as one document. It takes only listed
// fields of an object. Never taken are environments, other programs' arguments and annotations, volumes,
// machines' addresses, cloud-init, Secrets, and labels that support does not need.
// Messages and logs are masked (masked_text.h).

// The ends of the logs of Ferry's own containers: masked, and of a bounded size.

/// Requests the end of a log and waits for it.
using AskForLog = std::function<Result<std::string>(const kube::ObjectRef& pod, const kube::LogEnd& end)>;

struct Gathered {  // NOLINT(bugprone-exception-escape): JSON is moved, which throws nothing
  nlohmann::json document;
  std::vector<std::string> notes;  ///< missing parts, and why; of the archive also in the document
  bool whole = true;  ///< false: a request failed for another reason than the role or an unknown kind
};

/// Limits of one log, and of all together.
inline constexpr unsigned kMostLogLines = 400;
inline constexpr std::size_t kMostOfALog = std::size_t{64} << 10U;
inline constexpr std::size_t kMostOfLogs = std::size_t{4} << 20U;

/// Gathers the logs of containers of `pods` that run Ferry's programs, and no others. Containers in trouble
/// come first. A restarted container's previous log is gathered, too. The document is a list; each log has
/// {"namespace", "pod", "node", "container", "previous", "cut", "lines"}. `cut` is true if lines before the
/// first are missing.
Gathered gather_logs(const AskForLog& ask, const std::vector<nlohmann::json>& pods);

/// Gathers Nodes; pods that have GPUs or belong to Ferry, KubeVirt's launchers or NVIDIA's operator; VMs; the
/// KubeVirt object; Ferry's ConfigMaps and Leases; events of Nodes; the ends of Ferry's own logs
/// (gather_logs()). `space`: Ferry's namespace, with its ConfigMaps and Leases. Lists that the role hides,
/// that the cluster does not know, or that failed become `notes`. Errors: those of `ask` for Nodes.
Result<Gathered> gather_cluster(const kube::AskForPart& ask, const AskForLog& ask_for_log,
                                const std::string& space);

// The part of one object that is taken; null: none. `space`: Ferry's namespace.
nlohmann::json gathered_node(const nlohmann::json& node);
nlohmann::json gathered_pod(const nlohmann::json& pod, const std::string& space);
nlohmann::json gathered_vmi(const nlohmann::json& vmi);
nlohmann::json gathered_kubevirt(const nlohmann::json& kubevirt);
nlohmann::json gathered_config_map(const nlohmann::json& config_map);
nlohmann::json gathered_event(const nlohmann::json& event);

// `kubectl ferry plan`: the effect of a change of a node's labels, as far as the API server alone shows it.
// That is the policy, its content, and the GPUs' users there. Only the node knows which GPU is in which mode.
// Nothing is written.

/// "KEY=VALUE" sets a label, "KEY-" removes it, as for `kubectl label`. Errc::usage: a word is neither, a key
/// comes twice, or Kubernetes permits no such label.
Result<agent::LabelChanges> parse_label_changes(const std::vector<std::string>& words);

/// The user's words about an agent that the node's pods do not show. Without them another node's agent
/// counts, or the names of the chart.
struct AssumedAgent {
  std::string space = {};                     ///< namespace of its ConfigMaps; empty: not given
  std::vector<std::string> config_maps = {};  ///< empty: not given
};

struct LabelPlan {
  enum class Effect {
    same,        ///< the desired state does not change
    change,      ///< the desired state changes
    left_as_is,  ///< the desired state goes away: the GPUs stay as they are
    standby,     ///< standby: NVIDIA's programs serve the node
    invalid,     ///< the desired state is invalid: the GPUs stay as they are
  };
  Effect effect = Effect::same;
  policy::NodeObject node;     ///< before the change
  agent::LabelChanges labels;  ///< labels that change
  agent::DesiredState now;
  agent::DesiredState then;
  std::vector<GpuUser> users;      ///< of the node's GPUs
  std::vector<std::string> notes;  ///< unknown and additional facts, each as a sentence
};
std::string_view text(LabelPlan::Effect effect);

/// Reads the node, its pods and its agent's ConfigMaps. Errors: those of `ask`; Errc::not_found: there is no
/// such node.
Result<LabelPlan> read_label_plan(const kube::AskForPart& ask, const std::string& node,
                                  const agent::LabelChanges& changes, const AssumedAgent& assumed);

nlohmann::json plan_document(const LabelPlan& plan);
std::string plan_text(const LabelPlan& plan, std::optional<std::size_t> columns);
/// Exits as `ferry agent --once`: `usage` for an invalid desired state, `refused` on standby.
ExitStatus plan_status(const LabelPlan& plan);

}  // namespace ferry::kubectl
