// SPDX-License-Identifier: Apache-2.0
// The agent's memory from one reconcile to the next. Most state is on the Node and in the host's files, which
// outlive the agent. The memory holds facts that neither can show, above all times. It is a part of the
// snapshot (reconcile.h). An agent that restarts begins with an empty memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "agent/node_refusals.h"
#include "agent/operator_compat/operands.h"
#include "kube/backoff.h"

namespace ferry::agent {

/// The files that the agent and hostd share, and hostd's liveness. Needed to measure silence: a file's own
/// time comes from a clock that may be set. Lost at a restart: each patience with hostd and the kubelet
/// begins anew, and hostd's earlier ends and failures no longer count.
struct HostMemory {
  std::optional<std::string> files;        ///< desired.json and status.json; absent: not read yet
  std::optional<std::string> kata_files;   ///< kata.json and kata-classes.json; absent: not read yet
  Moment changed_at;                       ///< start of HostSide::silent
  Moment kata_changed_at;                  ///< start of HostSide::kata_silent
  std::optional<Moment> down_since;        ///< absent: hostd runs
  int ends = 0;                            ///< HostSide::ends
  bool has_failed = false;                 ///< HostSide::has_failed
  std::optional<std::string> last_status;  ///< status.json of a hostd that has ended; absent: it is newer
  std::set<std::string> unlisted;          ///< ready handlers of Kata that the kubelet does not list
  Moment unlisted_since;                   ///< start of HostSide::kata_unlisted

  // The agent's own writes. After a restart the node is `pending` until hostd has answered a file with the
  // same content in other words, and an artifact that hostd has not noticed is pulled once more.
  std::string unwritable;       ///< HostSide::unwritable
  std::string kata_unwritable;  ///< KataSnapshot::unwritable
  /// Generations of desired.json: the written one, and an earlier one with the same content in other words.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> same;
  bool fetched = false;  ///< hostd has to notice a pulled artifact
};

/// The change that the desired state asks for. Needed for the time limit of operands, and to report a late
/// failure of a blocked change to other nodes. Lost at a restart: operands get the whole time again, and such
/// a failure stays this node's own.
struct ChangeMemory {
  std::optional<Moment> waits_since;     ///< start of ReconcileResult::awaits_operands
  std::optional<std::uint64_t> blocked;  ///< generation of desired.json that was blocked, and is not done yet
};

/// Patches of the Node. Needed because other programs may revert a patch, or refuse it, and because the text
/// of an error may change at each reconcile. Lost at a restart: such a patch is sent again at once.
struct PatchMemory {
  NodeRefusals refusals;
  NodePatchContent last;  ///< of the last accepted patch
  Moment last_at;
  Moment again;  ///< the same patch is not sent before
  kube::Backoff repeats;
  Moment error_again;  ///< the error alone is not changed before
  std::chrono::seconds error_pause{0};
};

struct AgentMemory {
  HostMemory host;
  ChangeMemory change;
  PatchMemory patch;

  // The drain on the Node. Lost at a restart: the node's clock, which may have been set, says how long it has
  // run.
  std::string drain_mark;  ///< the annotation; empty: none
  Moment drain_since;      ///< start of the drain

  // NVIDIA's programs. Lost at a restart: Ferry's device plugin stays on standby for the whole time again,
  // and pods of a DaemonSet that was removed before are not NVIDIA's.
  std::set<std::string> daemon_set_uids;  ///< present and former DaemonSets of the operator
  std::optional<Moment> unserved_since;   ///< start of OtherPrograms::unserved; absent: 0 or unknown

  // Messages that are not repeated. Lost at a restart: each is logged or recorded once more.
  std::set<std::string> warnings;  ///< DesiredState::warnings, recorded as events
  std::set<std::string> events;    ///< recorded while the Node cannot show them
  std::set<std::string> doubts;    ///< logged PodOnNode::doubt
  bool node_is_missing = false;    ///< logged
};

}  // namespace ferry::agent
