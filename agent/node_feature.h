// SPDX-License-Identifier: Apache-2.0
// Labels for Node Feature Discovery (NFD) by an object of the cluster in place of a file on the host: its
// master sets on the Node what a NodeFeature says that is labelled with the Node's name.
// ABI: nfd.k8s-sigs.io/v1alpha1 NodeFeature.
//
// The object outlives the agent, as the labels are to, and goes with its owner: a ConfigMap that is there for
// as long as NodeFeatures are wanted, of all nodes, so that nobody has to be on a node to clean up after it;
// or the Node, where no such is named.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "agent/operands.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/timers.h"

namespace ferry {

/// Which object a Node itself owns, as "namespace/name": an agent that is not to have one removes it.
/// Relative to the host's root.
inline constexpr const char* kNodeFeatureMark = "var/lib/ferry/node-feature";

/// That of a Node.
ObjectRef node_feature_ref(std::string space, const std::string& node);

/// All that we say in it. `owner`: the object with which it goes, as the API server has it.
nlohmann::json node_feature(const std::string& node, const Labels& labels, ApiKind owner_kind,
                            const nlohmann::json& owner);

/// Whether an object has all that `content` says, and no label besides.
bool says_the_same(const nlohmann::json& object, const nlohmann::json& content);

/// Keeps one up where the cluster knows such objects; it is waited for until it does. One thread.
class NodeFeature {
 public:
  struct Settings {
    std::string node;
    std::string space;
    std::string owner;  ///< a ConfigMap in `space`; empty: the Node
  };

  /// `changed` is called, never from within a call, when there is a reason for keep(). What is named here
  /// must outlive this.
  NodeFeature(HostFs& host, ApiTransport& transport, ApiClient& client, Timers& timers, Random random,
              Settings settings, std::function<void()> changed);
  NodeFeature(const NodeFeature&) = delete;
  NodeFeature& operator=(const NodeFeature&) = delete;
  NodeFeature(NodeFeature&&) = delete;
  NodeFeature& operator=(NodeFeature&&) = delete;
  ~NodeFeature();

  /// Errc::usage: a name that no object can have.
  Result<> begin();

  /// Has it say these labels: writes where it does not. `node`: the Node as the API server has it.
  void keep(const Labels& labels, const nlohmann::json& node);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Removes the one that a former agent has left to its Node, if there is such; tried again for as long as
/// the API server does not answer.
class FormerNodeFeature {
 public:
  /// What is named here must outlive this.
  FormerNodeFeature(HostFs& host, ApiClient& client, Timers& timers, Random random);
  FormerNodeFeature(const FormerNodeFeature&) = delete;
  FormerNodeFeature& operator=(const FormerNodeFeature&) = delete;
  FormerNodeFeature(FormerNodeFeature&&) = delete;
  FormerNodeFeature& operator=(FormerNodeFeature&&) = delete;
  ~FormerNodeFeature();

  void remove();

 private:
  HostFs& host_;
  ApiClient& client_;
  Timers& timers_;
  const Random random_;
  Backoff backoff_;
  Timers::Timer timer_;
  std::optional<ApiClient::Call> call_;
};

}  // namespace ferry
