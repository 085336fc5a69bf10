// SPDX-License-Identifier: Apache-2.0
// Sanitizes the GPUs that a claim gets whole, once they are on vfio-pci and before they leave it
// (host/sanitize).
#pragma once

#include "common/result.h"
#include "host/claims/claim_record.h"
#include "host/sanitize/sanitize_step.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"

namespace ferry::host {

/// Resets the whole GPUs of a claim that ends, if the node's policy asks for it, and records the result. A
/// GPU that fails is not refused here: by `required` no later claim gets it. Errc::refused: a program has a
/// GPU of it open.
Result<> sanitize_after(HostFs& host, HostWriter& writer, const Sanitizer& sanitize, const Claim& claim);

/// The same for a device that has been made ready, if the past of a GPU of it is not known, or was not
/// sanitized. Errc::refused: a program has one open, or it could not be sanitized by `required`.
Result<> sanitize_before(HostFs& host, HostWriter& writer, const Sanitizer& sanitize, const Claim& claim,
                         const ClaimedDevice& device);

/// Errc::refused: a whole GPU of the claim is being sanitized, or could not be. Also those of the record.
Result<> check_sanitized(const HostFs& host, const Claim& claim);

}  // namespace ferry::host
