// SPDX-License-Identifier: Apache-2.0
// The programs `ferry-agent retire` and `ferry-agent get`, with the parts of them that need no server.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/pinned.h"
#include "common/result.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry::agent {

/// Ends all agents of a cluster while they have their RBAC rights: removes their DaemonSet after its pods
/// (propagationPolicy Foreground). An agent that ends resumes operands and uncordons the node, for which it
/// needs its rights (docs/adr/0027).
///
/// A DaemonSet that Helm has not installed stays: a person who applies the rendered chart, with the Job that
/// runs this program, does not want it removed.
///
/// Only one thread may use it.
class Retirement : Pinned {
 public:
  /// Transport, client and timers must outlive this object. `ended` is called once, and must not destroy this
  /// object: success if the DaemonSet is gone, or not Helm's; Errc::stuck if it still exists after
  /// `patience`; otherwise the server's error. A forbidden request is repeated until then, since the right to
  /// it may be too new to be in force.
  Retirement(kube::ApiTransport& transport, kube::ApiClient& client, kube::Timers& timers,
             kube::Random random, kube::ObjectRef daemon_set, std::chrono::seconds patience,
             std::function<void(Result<>)> ended);
  ~Retirement();

  /// Errc::usage: no object can have this name.
  Result<> begin();

 private:
  void look();
  void remove();
  void give_up();
  void end(Result<> how);

  kube::ApiClient& client_;
  kube::Timers& timers_;
  const kube::Random random_;
  const kube::ObjectRef daemon_set_;
  const std::chrono::seconds patience_;
  std::function<void(Result<>)> ended_;  ///< empty once called
  kube::ObjectWatch watch_;
  std::string removed_;           ///< UID of the DaemonSet whose removal was requested
  std::optional<Error> refusal_;  ///< the server's last refusal of it
  std::optional<kube::ApiClient::Call> call_;
  kube::Backoff backoff_;
  kube::OwnedTimer again_;
  kube::OwnedTimer deadline_;
};

/// `ferry-agent retire`, which the chart runs before `helm uninstall` removes the agents' rights. Exit
/// status: 0 the agents have ended; 1 and 2 as everywhere.
int retire_program(int argc, char** argv);

/// `ferry-agent get --raw PATH` prints the API server's answer, and its refusals, as kubectl does. In Ferry's
/// image it stands in for kubectl where `helm test` runs kubectl-ferry. Exit status: 0; 1 the server refuses
/// or does not answer; 2 as everywhere.
int get_program(int argc, char** argv);

}  // namespace ferry::agent
