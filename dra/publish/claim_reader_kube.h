// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dra/claims/claim_reader.h"
#include "kube/api_client.h"

namespace ferry::dra {

/// Reads ResourceClaims from the API server, without the fields that are of no use to read_allocated_claim().
class KubeClaimReader final : public ClaimReader {
 public:
  /// The client must outlive this.
  explicit KubeClaimReader(kube::ApiClient& client) : client_(client) {}

  void read(const ClaimKey& key, Done done) override;

 private:
  kube::ApiClient& client_;
};

}  // namespace ferry::dra
