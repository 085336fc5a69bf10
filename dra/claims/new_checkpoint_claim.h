// SPDX-License-Identifier: Apache-2.0
// The record of a claim before its devices are prepared, made of the claim's allocation and the node's
// slices.
#pragma once

#include <string>

#include "api/claim_request.h"
#include "common/result.h"
#include "dra/checkpoint.h"
#include "dra/claim.h"
#include "dra/slices/node_model.h"

namespace ferry::dra {

/// The record of a claim with its devices. Errc::not_found: the node does not publish a device of it. Errors:
/// those of check_available().
Result<CheckpointClaim> record_of(const AllocatedClaim& claim, NodeModel node, const Checkpoint& checkpoint,
                                  const std::string& pool);

/// Only the fields that begin_prepare() compares with a record that is there: requests and names.
CheckpointClaim names_of(const AllocatedClaim& claim);

/// The request that has hostd prepare the devices of the record.
api::ClaimRequest prepare_request(const CheckpointClaim& claim);

}  // namespace ferry::dra
