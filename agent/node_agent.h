// SPDX-License-Identifier: Apache-2.0
// The agent's loop. Whatever may have changed (the Node, a configuration, NVIDIA's pods, what hostd says,
// time that has passed) is a reason to look; one look (node_step.h) says all that is to be done now; and what
// is done is a reason to look again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/node_wish.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/event_recorder.h"
#include "kube/timers.h"

namespace ferry {

/// One thread. While nothing happens it has one open request for the Node, for each configuration, and for
/// the pods and the DaemonSets of NVIDIA's operator; and no timer but theirs.
class NodeAgent {
 public:
  struct Settings {
    std::string node;
    std::string space;                     ///< the namespace of the configurations
    std::vector<std::string> config_maps;  ///< policies and vGPU profiles
    std::string operator_space;            ///< where NVIDIA's operator runs its pods
    WishDefaults defaults;
  };

  /// All of these must outlive it.
  NodeAgent(HostFs& host, ApiTransport& transport, Timers& timers, Random random,
            EventRecorder::WallClock wall_clock, Settings settings);
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;
  NodeAgent(NodeAgent&&) = delete;
  NodeAgent& operator=(NodeAgent&&) = delete;
  ~NodeAgent();

  /// Errc::usage: a name that no object can have.
  Result<> begin();

  /// To be called when wanted.json or state.json may be another.
  void host_changed();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
