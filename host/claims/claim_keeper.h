// SPDX-License-Identifier: Apache-2.0
// Serves the requests of `ferry dra` about ResourceClaims (api/claim_request.h), and those of `ferry claims
// release`. A claim is prepared as a whole, or undone as a whole. Its files (api/claim_files.h) are written
// once its devices are ready, and removed once they are undone.
//
// The record of claims (claim_record.h) has a claim before the first write to the host for it, and as done
// after the last one. A repeated request goes on from the record: a claim that is done gets the same answer
// without a write, and a claim that a killed hostd left is finished. To unprepare a claim undoes the devices
// of the record, and no others. Changes by the node's policy leave GPUs with claims alone
// (gpus_with_claims()).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "api/claim_request.h"
#include "api/files.h"
#include "common/config/config_reader.h"
#include "common/pinned.h"
#include "common/result.h"
#include "host/claims/claim_devices.h"
#include "host/claims/claim_folder.h"
#include "host/claims/claim_record.h"
#include "host/gpu_conditions.h"
#include "host/node_apply.h"
#include "host/sanitize/sanitize_step.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

/// All paths are relative to the host's root.
struct ClaimSettings {
  std::filesystem::path desired_file =
      api::kDesiredFile;               ///< has the policy with the device users to quiesce
  Reading profiles = Reading::strict;  ///< of NVIDIA's profiles in it
  /// For files that are mounted into containers. `ferry dra` must not be able to write it or its parents.
  std::filesystem::path metadata_folder = kClaimMetadataFolder;
  std::chrono::milliseconds lock_patience = std::chrono::seconds(30);
  Sanitizer sanitize = default_sanitizer();  ///< for the whole GPUs of claims
};

class ClaimKeeper : Pinned {
 public:
  using Answer = Result<std::vector<api::PreparedDevice>>;

  /// `host` and the probes must outlive this object.
  ClaimKeeper(HostFs& host, const NodeProbes& uses, MakeContext make_context, ClaimSettings settings);

  /// Does all work of a request under the node's lock, and logs its result. To undo a claim that the record
  /// does not have needs no lock. Errors: Errc::unreachable, another ferry has the lock, so that nothing was
  /// done; Errc::refused, with the user of a device or the reason why the claim cannot have it;
  /// Errc::not_found, no such GPU; Errc::stuck; those of the record and the writes. The claim has no device
  /// then, unless nothing was done or the error says that it could not be undone.
  Answer serve(const api::ClaimRequest& request);

  /// Removes the files of claims that the record does not have, such as those of an earlier boot.
  Result<> tidy();

  /// The claim of the record, if no program uses its devices now; without the node's lock. Absent: there is
  /// no such claim. Errors: Errc::refused, with the user of a device; those of the record and of the scan.
  Result<std::optional<Claim>> find_unused(const std::string& uid) const;

 private:
  // These need the node's lock.
  Answer prepare(const api::ClaimRequest& request);
  /// Errors: kClaimableGpusFile cannot be read. An unreadable desired.json lets no device user be quiesced.
  Result<ClaimPolicy> read_policy() const;
  Answer make_ready(const api::ClaimRequest& request, const NodeContext& context, ScannedNode node,
                    const ClaimPolicy& policy, ClaimRecord& record, Claim claim, bool is_new);
  Result<> unprepare(const std::string& uid);
  Result<> remove_files(const std::string& uid);
  /// Undoes these devices of a claim, the last one first. Returns the first error, after it has tried all.
  static Result<> undo(const NodeContext& context, ClaimRecord& record, const Claim& claim,
                       std::size_t devices);
  /// Undoes these devices after a failure, and removes the claim from the record if nothing is left of it and
  /// no write is stuck.
  Error give_up(const NodeContext& context, ClaimRecord& record, const Claim& claim, std::size_t devices,
                Error why);

  HostFs& host_;
  const NodeProbes uses_;
  const MakeContext make_context_;
  const ClaimSettings settings_;
  ClaimFolder files_;
};

}  // namespace ferry::host
