// SPDX-License-Identifier: Apache-2.0
// Makes single devices of a claim ready, and undoes them, by the engines of `ferry vfio bind` and `ferry
// vgpu`. The caller holds the node's lock, and has recorded the devices (claim_record.h).
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/claimable_gpus.h"
#include "common/result.h"
#include "host/claims/claim_record.h"
#include "host/gpu_conditions.h"
#include "host/node_apply.h"
#include "host/sanitize/sanitize_step.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

/// The facts of a node's policy on which claims depend.
struct ClaimPolicy {
  /// The GPUs of kClaimableGpusFile, which a round has written. Only a GPU with `for_dra` goes to a claim.
  std::vector<api::ClaimableGpu> gpus = {};
  std::set<std::string> release = {};  ///< device users that may be quiesced; see policy::Policy
};

/// Chooses what each device of a new claim gets: the GPUs of an IOMMU group, a UUID, a virtual function.
/// Errors: Errc::not_found, there is no such GPU; Errc::refused, a GPU is not for DRA or not for such a
/// device, another claim has it, it carries vGPUs although it is to be whole, or there is no room for a vGPU.
Result<Claim> plan_claim(const api::ClaimRequest& request, const NodeContext& context,
                         const ScannedNode& node, const ClaimPolicy& policy, const ClaimRecord& record);

/// Errc::refused: a GPU of the claim is not for DRA any more, or not for such a device.
Result<> check_still_for_dra(const Claim& claim, const ClaimPolicy& policy);

/// A device that could not be made ready.
struct DeviceFailure {
  Error error;
  /// Nothing is left to be undone: nothing was written, or all of it was rolled back.
  bool is_clean = false;
};

/// Makes the device of a claim at `index` ready. A device that is ready already is not written to. Absent: it
/// is ready.
std::optional<DeviceFailure> make_device_ready(const NodeContext& context, const ScannedNode& node,
                                               const Claim& claim, std::size_t index,
                                               const ClaimPolicy& policy);

/// Errc::refused: a program uses a device of the claim, or it cannot be found out.
Result<> check_unused(const NodeContext& context, const ScannedNode& node, const Claim& claim);

/// Undoes a device, whether it is ready, half ready or undone already. A GPU that is gone has nothing left to
/// undo. Virtual functions that do not come back are added to the record's missing ones, and are no error.
/// The caller stores the record. Errors: Errc::refused with the device user; Errc::stuck; those of the
/// writes.
Result<> undo_device(const NodeContext& context, const Claim& claim, std::size_t index, ClaimRecord& record);

// claim_sanitizing.cpp sanitizes the GPUs that a claim gets whole, once they are on vfio-pci and before they
// leave it (host/sanitize).

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
