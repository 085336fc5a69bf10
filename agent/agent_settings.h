// SPDX-License-Identifier: Apache-2.0
// The settings of a NodeAgent.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/desired_state/desired_state.h"
#include "agent/kata/artifact_pulls.h"
#include "agent/labels/feature_labels.h"

namespace ferry::agent {

struct AgentSettings {
  std::string node;
  std::string space;                                ///< namespace of the configurations
  std::vector<std::string> config_maps;             ///< policies and vGPU profiles
  std::vector<std::filesystem::path> config_files;  ///< the same, as local files; read at each reconcile
  /// Ferry replaces a single program of NVIDIA's beside its others. Then only nvidia.com/vgpu.config
  /// counts, pods are watched in the operator's namespace alone, and Ferry never goes to standby.
  bool among_others = false;
  /// Namespace of the DaemonSets of NVIDIA's operator. Empty: there is no operator; pods are ignored and
  /// labels alone count, as where RBAC forbids to list pods.
  std::string operator_space;
  /// Further namespaces whose DaemonSets are trusted as NVIDIA's: tenants cannot write to them.
  std::vector<std::string> owner_spaces = {};
  DesiredDefaults defaults;
  std::size_t most_changing = 0;  ///< nodes of the cluster that may change at once; 0: no limit
  /// Time limit of a drain; absent: the agent waits for pods, and undoes a former agent's drain. It has no
  /// effect with among_others, whose Role does not permit it.
  std::optional<std::chrono::seconds> drain_timeout = {};
  bool not_confidential = false;           ///< feature_labels()
  bool sets_cc_mode = false;               ///< hostd gets the mode that the label nvidia.com/cc.mode asks for
  FeatureWay features = FeatureWay::none;  ///< labels that a former agent set in another way are removed
  std::string feature_owner = {};  ///< the ConfigMap in `space` that owns the NodeFeature; empty: the Node
  /// ConfigMap with Kata's classes, and its namespace. Empty: the agent does not manage Kata's runtimes.
  std::string kata_classes = {};
  std::string kata_space = {};
  kata::PullCredentials pull = {};
  Fetcher* fetcher = nullptr;  ///< must outlive the agent; null: nothing is pulled
};

}  // namespace ferry::agent
