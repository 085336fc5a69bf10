// SPDX-License-Identifier: Apache-2.0
// The ResourceClaims that have devices of this node, as the checkpoint of `ferry dra` has them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/output/text_output.h"
#include "dra/checkpoint.h"
#include "hostfs/host_fs.h"

namespace ferry::cli {

struct NodeClaims {
  std::vector<dra::CheckpointClaim> claims = {};  ///< of the running boot, in order of UID
  std::string problem = {};  ///< why they are not known; empty: they are, or there are none
};

/// Reads the file, in which another user has written.
NodeClaims read_claims(const HostFs& host);

/// A list; each claim has its devices.
nlohmann::json claims_document(const NodeClaims& node);
/// A row for each device. Empty: there are no claims, and no problem.
std::string claims_text(const NodeClaims& node, const TextOutput& output);

}  // namespace ferry::cli
