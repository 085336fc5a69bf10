// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "dra/checkpoint.h"
#include "dra/claim.h"
#include "dra/claims/claim_reader.h"
#include "kube/timers.h"

namespace ferry::dra {

/// Finds claims of the checkpoint that no longer exist, so that their GPUs become free also if the kubelet
/// has lost its own records and does not ask for that. A claim without a device of this node in the API
/// server is given kPatience, in which the kubelet asks as usual; then the claim itself is read. Only the
/// server's answer that there is no such claim, or one with another UID, counts. For one thread.
class LostClaims : Pinned {
 public:
  static constexpr std::chrono::minutes kPatience{5};

  struct Settings {
    /// The claims that have devices on this node.
    std::function<const Checkpoint&()> checkpoint;
    /// Undoes all claims but these UIDs: ClaimDriver::unprepare_all_but().
    std::function<void(const std::set<std::string>& existing)> unprepare_all_but;
  };

  /// Reader and timers must outlive this.
  LostClaims(ClaimReader& reader, kube::Timers& timers, Settings settings);
  ~LostClaims();

  /// To be called when the checkpoint, or the claims with devices of this node, may have changed.
  /// `in_server`: the UIDs of the latter.
  void look(std::set<std::string> in_server);

 private:
  std::vector<ClaimKey> missing() const;
  void read_all();
  void read(const ClaimKey& key, const Result<std::string>& uid);

  ClaimReader& reader_;
  kube::Timers& timers_;
  const Settings settings_;
  std::set<std::string> in_server_;
  std::set<std::string> gone_;  ///< UIDs of claims that do not exist
  std::size_t unread_ = 0;      ///< claims whose answer is awaited
  bool waits_ = false;          ///< timer_ is set
  kube::Timers::Timer timer_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ferry::dra
