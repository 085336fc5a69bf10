// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/result.h"
#include "kube/api_client.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry {

/// Ends all agents of a cluster while they have their RBAC rights: removes their DaemonSet after its pods
/// (propagationPolicy Foreground). An agent that ends resumes operands and uncordons the node, for which it
/// needs its rights (docs/adr/0027).
///
/// A DaemonSet that Helm has not installed stays: a person who applies the rendered chart, with the Job that
/// runs this program, does not want it removed.
///
/// For one thread.
class Retirement {
 public:
  /// Transport, client and timers must outlive this object. `ended` is called once, and must not destroy this
  /// object: success if the DaemonSet is gone, or not Helm's; Errc::stuck if it still exists after
  /// `patience`; otherwise the server's error. A forbidden request is repeated until then, since the right to
  /// it may be too new to be in force.
  Retirement(ApiTransport& transport, ApiClient& client, Timers& timers, Random random, ObjectRef daemon_set,
             std::chrono::seconds patience, std::function<void(Result<>)> ended);
  Retirement(const Retirement&) = delete;
  Retirement& operator=(const Retirement&) = delete;
  Retirement(Retirement&&) = delete;
  Retirement& operator=(Retirement&&) = delete;
  ~Retirement();

  /// Errc::usage: no object can have this name.
  Result<> begin();

 private:
  void look();
  void remove();
  void give_up();
  void end(Result<> how);

  ApiClient& client_;
  Timers& timers_;
  const Random random_;
  const ObjectRef daemon_set_;
  const std::chrono::seconds patience_;
  std::function<void(Result<>)> ended_;  ///< empty once called
  ObjectWatch watch_;
  std::string removed_;           ///< UID of the DaemonSet whose removal was requested
  std::optional<Error> refusal_;  ///< the server's last refusal of it
  std::optional<ApiClient::Call> call_;
  Backoff backoff_;
  Timers::Timer again_;
  Timers::Timer deadline_;
};

}  // namespace ferry
