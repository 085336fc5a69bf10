// SPDX-License-Identifier: Apache-2.0
// The programs `ferry-agent kubevirt-cr` and `ferry-agent retire`, with the parts of them that need no
// server.
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

// Compares the cluster's KubeVirt object with the devices that a node offers. Pure.
// ABI: kubevirt.io/v1 KubeVirt, spec.configuration.permittedHostDevices and mediatedDevicesConfiguration
// (KubeVirt v1.9.0).

/// Differences between the cluster's object and the needs of a node.
struct PermitChange {
  /// Entries to add, or to mark as served by an external device plugin; a sentence each.
  std::vector<std::string> lacks;
  /// Differences that a person has to resolve; a sentence each, with advice.
  std::vector<std::string> by_hand;
  /// Facts worth knowing that are no fault.
  std::vector<std::string> notes;
  /// The merge patch that resolves `lacks`; null: nothing to do. A merge patch replaces whole lists. So these
  /// are the object's own lists with the new entries in them: every other entry stays.
  nlohmann::json patch;

  bool fits() const { return lacks.empty() && by_hand.empty(); }
};

/// `kubevirt` is the cluster's object; `ours` is the output of `ferry kubevirt-cr -o json`.
///
/// An object without permittedHostDevices permits everything, and a new list would forbid all other devices.
/// So nothing is added then. Only mediated devices need the list, since KubeVirt removes unlisted ones; that
/// is `by_hand`.
///
/// A list of another field manager (`kubectl apply`, a GitOps tool) is not changed either: that manager would
/// revert the change while VMs run. Its missing entries are `by_hand`.
///
/// Errors: Errc::malformed_host: an argument is no such object; the message names the wrong key.
Result<PermitChange> permit_change(const nlohmann::json& kubevirt, const nlohmann::json& ours);

/// `ferry-agent kubevirt-cr`, the program behind `ferry kubevirt-cr --check` and `--apply`: compares the
/// cluster's KubeVirt object with the output of `ferry kubevirt-cr -o json` on standard input, or adds to it.
/// Exit status: 0 the object permits the node's devices, 3 it does not, 4 a person has to decide; 1 and 2 as
/// everywhere.
int kubevirt_cr_program(int argc, char** argv);

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

}  // namespace ferry::agent
