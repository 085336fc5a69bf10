// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "dra/claims/claim_reader.h"
#include "kube/api_client.h"
#include "kube/timers.h"

namespace ferry::dra {

/// Reads ResourceClaims from the API server, without the fields that are of no use to read_allocated_claim().
class KubeClaimReader final : public ClaimReader {
 public:
  /// The time for an answer, all tries together: a connection whose other end is gone is silent for longer.
  /// ClaimDriver answers the kubelet after 30 s, and has to know by then that no answer comes.
  static constexpr std::chrono::seconds kLongest{25};

  /// Both must outlive this and its reads.
  KubeClaimReader(kube::ApiClient& client, kube::Timers& timers) : client_(client), timers_(timers) {}

  void read(const ClaimKey& key, Done done) override;

 private:
  kube::ApiClient& client_;
  kube::Timers& timers_;
};

}  // namespace ferry::dra
