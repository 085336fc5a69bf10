// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <nlohmann/json_fwd.hpp>

#include "common/pinned.h"
#include "common/result.h"
#include "dra/claim.h"

namespace ferry::dra {

/// Reads ResourceClaims from the API server. Belongs to the loop's thread.
class ClaimReader : Pinned {
 public:
  using Done = std::function<void(Result<nlohmann::json>)>;

  virtual ~ClaimReader() = default;

  /// Reads the claim of this namespace and name, whatever its UID is. `done` runs once, in the loop; it may
  /// run before read() returns. Errc::not_found: there is no such claim. Errc::unreachable: the API server
  /// does not answer. Each error's message names the claim.
  virtual void read(const ClaimKey& key, Done done) = 0;
};

}  // namespace ferry::dra
