// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <set>
#include <string>

#include "common/pinned.h"
#include "dra/checkpoint.h"
#include "kube/timers.h"

namespace ferry::dra {

/// Finds claims of the checkpoint that have no device of this node in the API server, so that their GPUs
/// become free also if the kubelet has lost its own records and does not ask for that. The kubelet first has
/// kPatience to ask as usual. For one thread.
class LostClaims : Pinned {
 public:
  static constexpr std::chrono::minutes kPatience{5};

  struct Settings {
    /// The claims that have devices on this node.
    std::function<const Checkpoint&()> checkpoint;
    /// ClaimDriver::unprepare_all_but(), which reads each of the other claims before it undoes one, since
    /// `existing` may be older than the claim.
    std::function<void(const std::set<std::string>& existing)> unprepare_all_but;
  };

  /// The timers must outlive this.
  LostClaims(kube::Timers& timers, Settings settings);
  ~LostClaims();

  /// Call this when the checkpoint, or the claims with devices of this node, may have changed.
  /// `in_server`: the UIDs of the latter.
  void look(std::set<std::string> in_server);

 private:
  bool lacks_one() const;

  kube::Timers& timers_;
  const Settings settings_;
  std::set<std::string> in_server_;
  bool waits_ = false;  ///< timer_ is set
  kube::Timers::Timer timer_;
};

}  // namespace ferry::dra
