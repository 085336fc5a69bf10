// SPDX-License-Identifier: Apache-2.0
// The ResourceClaims that have devices of this node, as the checkpoint of `ferry dra` has them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "cli/output/text_output.h"
#include "common/result.h"
#include "dra/checkpoint.h"
#include "hostfs/host_fs.h"

namespace ferry::cli {

/// Reads the file, in which another user has written: the claims of the running boot, in order of UID.
Result<std::vector<dra::CheckpointClaim>> read_claims(const HostFs& host);

/// A list; each claim has its devices.
nlohmann::json claims_document(const std::vector<dra::CheckpointClaim>& claims);
/// A row for each device, or a note why the claims are not known. Empty: there are none.
std::string claims_text(const Result<std::vector<dra::CheckpointClaim>>& claims, const TextOutput& output);

}  // namespace ferry::cli
