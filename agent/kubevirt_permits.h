// SPDX-License-Identifier: Apache-2.0
// What the cluster's KubeVirt object says of the devices that a node offers, and what it should. Pure.
// ABI: kubevirt.io/v1 KubeVirt, spec.configuration.permittedHostDevices and mediatedDevicesConfiguration
// (KubeVirt v1.9.0).
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/result.h"

namespace ferry {

/// How the cluster's object differs from what a node needs.
struct PermitChange {
  /// What is to be added, or to be marked as offered by others than KubeVirt; a sentence each.
  std::vector<std::string> lacks;
  /// What only a person can decide; a sentence each, with what to do.
  std::vector<std::string> by_hand;
  /// What is no fault and worth knowing.
  std::vector<std::string> notes;
  /// The merge patch that does what `lacks` says; null: there is nothing to do. Lists are replaced whole by
  /// such a patch, so these are the object's own with ours in them: every other entry stays as it is.
  nlohmann::json patch;

  bool fits() const { return lacks.empty() && by_hand.empty(); }
};

/// `kubevirt`: the object as it is in the cluster; `ours`: what `ferry kubevirt-cr -o json` prints.
///
/// An object without permittedHostDevices permits everything: adding a list would forbid all that is not in
/// it. So nothing is added then; it matters only for mediated devices, which KubeVirt removes unless they are
/// listed, and that is `by_hand`.
///
/// A list that another field manager applies (`kubectl apply`, what brings manifests from a repository) is
/// left alone too: it would be put back as that has it, under VMs that run. What it lacks is `by_hand`.
///
/// Errors: Errc::malformed_host, one of them is no such object; it says which key is wrong.
Result<PermitChange> permit_change(const nlohmann::json& kubevirt, const nlohmann::json& ours);

}  // namespace ferry
