// SPDX-License-Identifier: Apache-2.0
// Labels for Node Feature Discovery (NFD) by an object of the cluster instead of a file on the host. NFD's
// master sets on a Node the labels of the NodeFeature that is labelled with the Node's name.
// ABI: nfd.k8s-sigs.io/v1alpha1 NodeFeature.
//
// The object outlives the agent, as its labels must, and is garbage-collected with its owner. The owner is a
// ConfigMap that exists while NodeFeatures of all nodes are desired, so that no agent is needed on a node to
// clean up. Without such a ConfigMap the owner is the Node.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "agent/agent_settings.h"
#include "agent/node_refusals.h"
#include "agent/operator_compat/operands.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry::agent {

/// Records the object that the Node owns, as "namespace/name": an agent that needs none removes it. Relative
/// to the host's root.
inline constexpr const char* kNodeFeatureMark = "var/lib/ferry/node-feature";

/// The content that the agent applies. `owner`: the owning object, as the API server has it.
nlohmann::json node_feature(const std::string& node, const Labels& labels, kube::ApiKind owner_kind,
                            const nlohmann::json& owner);

/// True if the object has all of `content` and no further label.
bool says_the_same(const nlohmann::json& object, const nlohmann::json& content);

/// Keeps a NodeFeature up to date; waits while the cluster does not know such objects. Only one thread may
/// use it.
class NodeFeature : Pinned {
 public:
  /// `changed` is called, never from within a call, when keep() is due. The references must outlive this
  /// object.
  NodeFeature(HostFs& host, kube::ApiTransport& transport, kube::ApiClient& client, kube::Timers& timers,
              kube::Random random, const AgentSettings& settings, std::function<void()> changed);
  ~NodeFeature();

  /// Errc::usage: a name that no object can have.
  Result<> begin();

  /// Writes the object unless it has these labels. `node`: the Node, as the API server has it.
  void keep(const Labels& labels, const nlohmann::json& node);

 private:
  const nlohmann::json* config_map();
  void write(nlohmann::json content);
  void failed(const Error& error);

  HostFs& host_;
  kube::ApiClient& client_;
  kube::Timers& timers_;
  const kube::Random random_;
  const AgentSettings& settings_;
  const std::function<void()> changed_;
  const kube::ObjectRef object_;
  kube::ObjectWatch watch_;
  std::unique_ptr<kube::ObjectWatch> owner_;  ///< null: the Node
  bool owner_missed_ = false;                 ///< and that was logged

  std::optional<kube::ApiClient::Call> writing_;
  std::optional<nlohmann::json> written_;  ///< as last written, until the watch reports it
  bool heard_since_write_ = false;
  nlohmann::json last_;  ///< content of the last write
  Moment last_at_;
  Moment not_before_;  ///< earliest time of the next write
  kube::Backoff backoff_;
  kube::Backoff repeats_;
  kube::OwnedTimer timer_;
};

/// Removes the NodeFeature of a former agent that the Node owns, if there is one. The request is repeated
/// while the API server does not answer.
class FormerNodeFeature : Pinned {
 public:
  /// The references must outlive this object.
  FormerNodeFeature(HostFs& host, kube::ApiClient& client, kube::Timers& timers, kube::Random random);
  ~FormerNodeFeature();

  void remove();

 private:
  HostFs& host_;
  kube::ApiClient& client_;
  kube::Timers& timers_;
  const kube::Random random_;
  kube::Backoff backoff_;
  kube::OwnedTimer timer_;
  std::optional<kube::ApiClient::Call> call_;
};

}  // namespace ferry::agent
