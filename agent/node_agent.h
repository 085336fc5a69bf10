// SPDX-License-Identifier: Apache-2.0
// The agent's loop. Whatever may have changed (the Node, a configuration, NVIDIA's pods, what hostd says,
// time that has passed) is a reason to look; one look (node_step.h) says all that is to be done now; and what
// is done is a reason to look again.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/artifact_pulls.h"
#include "agent/feature_labels.h"
#include "agent/node_wish.h"
#include "common/event_loop.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/event_recorder.h"
#include "kube/timers.h"

namespace ferry {

/// One thread. While nothing happens it has one open request for the Node, for each configuration, for
/// the pods on the node and for the DaemonSets of NVIDIA's operator; and no timer but theirs. While it
/// changes, or waits for its turn, there is one more, for the Leases in which agents take turns. With
/// FeatureWay::nfd there is one for its NodeFeature, and one for what owns that, where it is not the Node.
/// The pods are watched where there may be an operator, or where pods may be evicted; the ConfigMap with
/// Kata's classes where one is named.
class NodeAgent {
 public:
  struct Settings {
    std::string node;
    std::string space;                                ///< the namespace of the configurations
    std::vector<std::string> config_maps;             ///< policies and vGPU profiles
    std::vector<std::filesystem::path> config_files;  ///< such, as files of ours; read at each look
    /// Ferry runs in the place of one of NVIDIA's programs, among the others: only
    /// nvidia.com/vgpu.config counts, it asks about their pods in their namespace alone, and never stands
    /// back.
    bool among_others = false;
    /// Where NVIDIA's operator has its DaemonSets. Empty: it is not there; nobody's pods are looked at, and
    /// what labels say counts, as where our role does not permit to see them.
    std::string operator_space;
    /// Further namespaces whose DaemonSets are believed to be NVIDIA's: tenants cannot write to them.
    std::vector<std::string> owner_spaces = {};
    WishDefaults defaults;
    std::size_t most_changing = 0;  ///< nodes of the cluster that may change at once; 0: any number
    /// For how long pods that hold the GPUs are evicted; absent: they are waited for. What a former agent
    /// began is undone then. Not among others, whose role it would not be.
    std::optional<std::chrono::seconds> drain_timeout = {};
    FeatureWay features = FeatureWay::none;  ///< what a former agent said by another way goes
    std::string feature_owner = {};          ///< NodeFeature::Settings::owner
    /// The ConfigMap with Kata's classes, and its namespace. Empty: which of them are here is not ours to
    /// say.
    std::string kata_classes = {};
    std::string kata_space = {};
    PullCredentials pull = {};
    Fetcher* fetcher = nullptr;  ///< must outlive the agent; null: nothing is pulled
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

  /// To be called when a file by which we meet hostd may be another, or hostd may have come or gone.
  void host_changed();

  /// To be called when a configuration file may be another.
  void configurations_changed();

  /// The process is to end: nothing is begun any more, operands that we have paused are resumed, and the
  /// node's turn is given back (LastTurn), once hostd has ended what it does, or has ended itself, and after
  /// a minute in any case. Then `left` is called, once: at once where nobody is paused and the node has no
  /// turn, and where the API server does not answer when that minute is over.
  void leave(EventLoop::Job left);

  /// Absent: nothing is pulled here.
  std::optional<PullCounts> pulls() const;

  /// KubeVirt's VirtualMachineInstances on this node by their pods ("namespace/name"); empty where pods are
  /// not watched.
  std::map<std::string, std::string> vmis() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
