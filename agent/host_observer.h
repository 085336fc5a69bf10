// SPDX-License-Identifier: Apache-2.0
// Reads hostd's files and liveness, and measures hostd's silence. Only one thread may use it.
#pragma once

#include "agent/agent_memory.h"
#include "agent/node_report.h"
#include "agent/reconcile_queue.h"
#include "hostfs/host_fs.h"
#include "kube/timers.h"
#include "policy/kubernetes_files.h"

namespace ferry::agent {

class HostObserver {
 public:
  /// The references must outlive this object.
  HostObserver(const HostFs& host, kube::Timers& timers, HostMemory& memory, ReconcileQueue& queue)
      : host_(host), timers_(timers), memory_(memory), queue_(queue), again_(timers) {}

  /// True if the host's files have changed.
  bool read_files();
  /// True if hostd has started or stopped. If its lock cannot be checked, hostd counts as running.
  bool read_liveness();
  /// Reads both, and schedules a reconcile if anything has changed.
  void read();

  /// The files alone, without times.
  const HostSide& files() const { return files_; }
  bool hostd_runs() const { return !memory_.down_since; }
  /// The files, with the times that the memory has. `node` shows which handlers the kubelet lists.
  HostSide snapshot(const policy::NodeObject& node);

 private:
  void read_liveness_again();

  const HostFs& host_;
  kube::Timers& timers_;
  HostMemory& memory_;
  ReconcileQueue& queue_;
  HostSide files_;
  kube::OwnedTimer again_;
};

}  // namespace ferry::agent
