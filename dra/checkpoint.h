// SPDX-License-Identifier: Apache-2.0
// The checkpoint of claims (kCheckpointFile): which devices claims have on this node, and how far each claim
// is. `ferry dra` writes the file before and after each request to hostd, so that a process that was killed
// anywhere goes on from there.
//
//   {"version": 1, "boot_id": "0e7c...", "claims": [
//     {"uid": "5be0c3aa-...", "namespace": "studio", "name": "render-a", "pod_claim": null,
//      "phase": "prepared", "devices": [
//       {"request": "card", "pool": "node7/gpu-ferry", "gpu": "0000:3b:00.0", "type": "1150",
//        "placement": null, "id": "0000:3b:00.4", "resources": null,
//        "device": {"name": "vgpu-0000-3b-00-0-1150-0",
//                   "attributes": [{"name": "type", "string": "vgpu"}, {"name": "typeID", "int": 1150}],
//                   "capacity": [{"name": "framebuffer", "value": 6442450944}],
//                   "consumes": [{"name": "group-42", "compatibility_groups": [{"name": "size-6144"}],
//                                 "counters": [{"name": "framebuffer", "value": 6442450944}]}]},
//        "counter_set": {"name": "group-42",
//                        "counters": [{"name": "framebuffer", "value": 25769803776}]}}]}]}
//
// A claim begins as `preparing`, before hostd is asked; is `prepared` once hostd has answered, until hostd
// refuses a repeat; is `unpreparing` before hostd is asked to undo it, and then leaves the file. The file is
// void after a reboot, which its boot ID shows. hostd has its own record of the same claims
// (host/claims/claim_record.h), with their nodes, and does not believe this one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/claim_request.h"
#include "common/result.h"
#include "common/text/words.h"
#include "dra/slices/node_model.h"
#include "dra/slices/resource_slice.h"
#include "vfio/pci/pci_address.h"

namespace ferry::dra {

/// For errors of a checkpoint that cannot be read.
inline constexpr const char* kCheckpointHint =
    "`ferry dra` writes it: is it of the same version? If no VM of this node has a GPU by a claim, remove it";

enum class CheckpointPhase { preparing, prepared, unpreparing };
inline constexpr Words<CheckpointPhase, 3> kCheckpointPhases = {
    {{"preparing", CheckpointPhase::preparing},
     {"prepared", CheckpointPhase::prepared},
     {"unpreparing", CheckpointPhase::unpreparing}}};
constexpr const auto& words_of(CheckpointPhase /*phase*/) {
  return kCheckpointPhases;
}
constexpr std::string_view text(CheckpointPhase phase) {
  return word_for(words_of(phase), phase);
}

/// A device that the scheduler allocated to a claim.
struct ClaimDevice {
  std::string request;  ///< "card", or "card/small" where the claim lists alternatives
  std::string pool;
  vfio::PciAddress gpu = {};                    ///< of a whole device: the first GPU of its IOMMU group
  std::string type = {};                        ///< the ID of the vGPU's type; empty: a whole device
  std::optional<std::uint32_t> placement = {};  ///< of a GPU with mixed sizes
  /// The device as it was published, without taints. It stays published like this until the claim ends.
  Device device = {};
  CounterSet counters = {};  ///< that it consumes from, as published; no name: none
  /// The UUID of the mediated device or the function that the VM has, for people. Empty: never prepared.
  std::string id = {};
  std::vector<std::string> resources = {};  ///< api::DeviceOfPod::resources

  /// The device by which hostd knows it.
  api::RequestedDevice asked() const { return {.gpu = gpu, .type = type, .placement = placement}; }
  bool operator==(const ClaimDevice&) const = default;
};

struct CheckpointClaim {
  std::string uid = {};
  std::string space = {};  ///< namespace
  std::string name = {};
  /// The name in the pod's `resourceClaims` of a claim that was made from a template. Empty: the pod names
  /// the claim itself.
  std::string pod_claim = {};
  CheckpointPhase phase = CheckpointPhase::preparing;
  std::vector<ClaimDevice> devices = {};
  bool operator==(const CheckpointClaim&) const = default;
};

struct Checkpoint {
  std::string boot_id;
  std::vector<CheckpointClaim> claims = {};  ///< in order of UID

  /// nullptr: there is no such claim.
  const CheckpointClaim* find(std::string_view uid) const;
  bool operator==(const Checkpoint&) const = default;
};

/// The file's content.
std::string checkpoint_text(const Checkpoint& checkpoint);

/// Unknown keys are ignored. Errc::malformed_host: not such a file, another version, or a key that is missing
/// or has a wrong value; the message has the place.
Result<Checkpoint> read_checkpoint(std::string_view text);

/// The checkpoint for the running kernel: without claims if it is of another boot, since vGPUs and drivers
/// are as after a boot then.
Checkpoint for_boot(Checkpoint checkpoint, std::string_view boot_id);

// Steps of a claim. Each changes the value only; the caller writes the file before it goes on. Every step may
// be repeated.

/// Records the intent to prepare `claim`. A claim that is recorded already stays as it is. Errc::refused:
/// another claim has one of the devices; or the claim is being unprepared; or it is recorded with other
/// devices or requests, and must be unprepared first.
Result<> begin_prepare(Checkpoint& checkpoint, CheckpointClaim claim);
/// Records hostd's answers, in order of the claim's devices. Errc::not_found: no such claim. Errc::failed:
/// another number of devices, or the claim is being unprepared.
Result<> finish_prepare(Checkpoint& checkpoint, std::string_view uid,
                        std::span<const api::PreparedDevice> results);
/// Records that a claim must be prepared again: hostd has refused a repeat, and may have undone devices. The
/// former IDs stay. False: the claim was never prepared, so that nothing changes.
bool begin_again(Checkpoint& checkpoint, std::string_view uid);
/// Records the intent to undo a claim. False: no such claim, so there is nothing to undo.
bool begin_unprepare(Checkpoint& checkpoint, std::string_view uid);
/// Removes a claim that has been undone, or that was refused before anything was done for it.
void finish_unprepare(Checkpoint& checkpoint, std::string_view uid);

/// The devices of all claims, for the slices and for check_available().
std::vector<HeldDevice> held_devices(const Checkpoint& checkpoint);

}  // namespace ferry::dra
