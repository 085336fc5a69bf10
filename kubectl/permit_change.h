// SPDX-License-Identifier: Apache-2.0
// Compares the cluster's KubeVirt object with the devices that a node offers. Pure.
// ABI: kubevirt.io/v1 KubeVirt, spec.configuration.permittedHostDevices and mediatedDevicesConfiguration
// (KubeVirt v1.9.0).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.h"

namespace ferry::kubectl {

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

/// The differences for people. `name`: "NAMESPACE/NAME" of the object.
std::string change_text(const std::string& name, const PermitChange& change);

/// The output of `ferry kubevirt-cr -o json` in a file; "-" is standard input. Errors: those of the file;
/// Errc::usage: it is something else.
Result<nlohmann::json> read_offered(const std::string& file);

}  // namespace ferry::kubectl
