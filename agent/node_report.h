// SPDX-License-Identifier: Apache-2.0
// The node's state for the cluster: labels and an annotation, from the desired state and the host status.
// Pure; the time is a parameter.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/desired_state/desired_state.h"
#include "agent/desired_state/written_policy.h"
#include "agent/operator_compat/operands.h"
#include "agent/rollout/rollout.h"
#include "api/host_status.h"
#include "kata-manager/classes/desired_classes.h"
#include "kata-manager/controller/ready_handlers.h"
#include "policy/kubernetes_files.h"

namespace ferry::agent {

/// The agent's knowledge of its host.
struct HostSide {
  std::optional<api::DesiredFile> written;  ///< present desired.json; absent: none, or not the agent's
  std::optional<api::HostStatus> status;    ///< status.json; absent: none, or not readable
  std::string unreadable;       ///< why status.json is unreadable; empty: it is not, or there is none
  std::string unwritable = {};  ///< why desired.json could not be written or removed; empty: it could
  /// Generation of an earlier desired.json with the same content in other words: hostd's result for that one
  /// counts for the present one too. Absent: none.
  std::optional<std::uint64_t> same_as = {};
  kata::HandlersFile kata = {};  ///< kata.json: hostd's report on Kata's handlers
  std::optional<kata::DesiredClasses> kata_written =
      {};                               ///< kata-classes.json; absent: none, or not readable
  std::chrono::seconds kata_silent{0};  ///< time since either of the two changed
  /// Time for which the kubelet has not listed the same ready handlers; 0: it lists all.
  std::chrono::seconds kata_unlisted{0};
  /// Time since desired.json or status.json changed.
  std::chrono::seconds silent{0};
  /// Time for which hostd has been down, as the agent has seen it; 0 while it runs.
  std::chrono::seconds hostd_down{0};
  /// How often hostd has ended, as the agent has seen it, since `written` was written and before it was done.
  int ends = 0;
  /// hostd has reported that `written` failed. Its later tries justify no pause of operands: hostd names the
  /// device users in its way.
  bool has_failed = false;
  /// hostd runs, and has written `status` since its start. False as soon as it ends: an action at the expense
  /// of others, such as an eviction, checks this and not hostd_is_gone().
  bool hostd_speaks = true;
};

/// Values of the label gpu-ferry.io/state.
enum class NodeCondition {
  ready,
  pending,  ///< desired; hostd has not answered yet
  applying,
  draining,  ///< in use by pods that are being evicted
  blocked,   ///< in use; done without another request once the users end
  failed,
  idle,
  standby,
  unknown,  ///< hostd had taken it up, and is down for too long
};
std::string_view text(NodeCondition condition);

struct NodeReport {
  NodeCondition condition = NodeCondition::idle;
  bool held = false;    ///< pending until a person resolves `trouble`
  std::string trouble;  ///< the error, in a line of at most kMostReported bytes; empty: none
  LabelChanges labels;  ///< new values; other labels stay
  LabelChanges annotations;
};

/// Report on the pods that use the GPUs (drain.h).
struct DrainReport {
  bool draining = false;
  std::string note = {};  ///< why pods are not evicted, or not yet; empty: no reason
};

/// Limit in bytes of the agent's annotations, and of an event's message.
inline constexpr std::size_t kMostReported = 1024;

/// Time limits for hostd: it answers a desired state within moments, and a change of a node takes minutes.
inline constexpr std::chrono::seconds kAnswerPatience{30};
inline constexpr std::chrono::seconds kChangePatience{900};

/// A hostd that ends this often in the middle of a change has failed, although it is restarted each time.
inline constexpr int kMostEnds = 3;

/// Time for which the last host status stays valid while hostd is down. It covers an update, a reboot, and
/// the back-off of a pod's restarts, which is five minutes at most.
inline constexpr std::chrono::seconds kGonePatience{600};

/// True if the host status is too old to be trusted.
bool hostd_is_gone(const HostSide& host);

/// True if hostd has taken up the present desired.json, or there is none.
bool has_answered(const HostSide& host);

/// True if the host status is about this desired state.
bool is_taken_up(const DesiredState& desired_state, const HostSide& host);

/// True if hostd has reached this desired state, although desired.json had other words for it: another name,
/// another label, or a configuration that has changed elsewhere.
bool is_done_already(const DesiredState& desired_state, const HostSide& host);

/// True if hostd's answer to desired.json is overdue.
bool waits_in_vain(const HostSide& host);

/// True if hostd's answer to this desired state is overdue.
bool is_silent(const DesiredState& desired_state, const HostSide& host);

/// `held`: why the change does not begin until a person acts; empty: it may begin.
NodeReport node_report(const DesiredState& desired_state, const HostSide& host, const std::string& held = {},
                       const DrainReport& drain = {});

/// Adds `text` to the annotation alone: it is not about the host, so `trouble` does not contain it.
void add_to_error(NodeReport& report, const std::string& text);

bool host_is_changing(const HostSide& host);

/// Result of desired.json, for nodes that wait for it. Silence for more than kChangePatience is a failure
/// too, and so are kMostEnds ends of hostd. A failure that a hostd reported which is down now counts only
/// after that time.
ChangeOutcome change_outcome(const HostSide& host);
/// True if hostd itself has reported the failure.
bool says_that_it_failed(const HostSide& host);
/// Reason of the failure, in a line that other nodes may show.
std::string failure_of(const HostSide& host);

/// The errors in the host status: the general error, then each accelerator that is blocked or failed, as in
/// "0000:02:00.0 (NVIDIA L40S): in use; users: vm guest-7 (pid 4711); stop the VM". Device users in the
/// reason are not repeated.
std::vector<std::string> host_troubles(const api::HostStatus& host);

/// A line of at most `most` bytes: control characters become blanks, and "…" replaces the end of a longer
/// text.
std::string one_line(std::string_view text, std::size_t most = kMostReported);

// Events of the Node, each recorded once when its cause appears.

struct NodeEvent {
  bool warning = false;  ///< type Warning, otherwise Normal
  std::string reason;    ///< "Blocked"
  std::string message;   ///< at most kMostReported bytes
  bool operator==(const NodeEvent&) const = default;
};

/// Warnings of GPUs that hostd keeps back, since it could not sanitize them, and of GPUs that NVIDIA's CC
/// manager resets in use.
std::vector<NodeEvent> gpu_warnings(const policy::NodeObject& node, const HostSide& host);

/// The events of `report` that the Node does not show yet. The Node's label and annotation are the memory, so
/// that a restarted agent records no event twice. `recorded_before`: warnings that are recorded already.
std::vector<NodeEvent> node_events(const policy::NodeObject& node, const DesiredState& desired_state,
                                   const HostSide& host, const NodeReport& report,
                                   const std::set<std::string>& recorded_before);

}  // namespace ferry::agent
