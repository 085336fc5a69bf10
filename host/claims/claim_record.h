// SPDX-License-Identifier: Apache-2.0
// hostd's record of claims (kClaimRecordFile): the devices that it has made ready for ResourceClaims, or that
// it is making ready. It is written before the first write to the host for a claim, and after the last one.
// `ferry dra` has its own record of the same claims, the checkpoint (dra/checkpoint.h).
//
//   {"version": 1, "boot_id": "0e7c...", "claims": [
//     {"uid": "5be0c3aa-...", "namespace": "studio", "name": "render-a", "phase": "intent | done | again",
//      "devices": [
//        {"gpu": "0000:3b:00.0", "type": null, "placement": null, "was_on_vfio": false,
//         "gpus": [{"address": "0000:3b:00.0", "functions": 16}],
//         "mdev_uuid": null, "function": "0000:3b:00.0",
//         "nodes": [{"path": "/dev/vfio/57", "mode": 384}],
//         "resources": ["nvidia.com/AD102GL_L40S"] | null}]}],
//    "missing_functions": [{"gpu": "0000:5e:00.0", "functions": 16, "reason": "..." | null}],
//    "made_functions": ["0000:5e:00.0"]}
//
// The record is void after a reboot, which its boot ID shows: vGPUs and drivers are as after a boot then. The
// earlier drivers of a whole device are not in it, since the undo journal has them
// (vfio/bind/undo_journal.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/claim_request.h"
#include "common/result.h"
#include "common/text/words.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

inline constexpr const char* kClaimRecordFile = "run/ferry/hostd/claims.json";
inline constexpr int kClaimRecordVersion = 1;

enum class ClaimPhase {
  intent,  ///< devices are being made ready or undone; each may be in either state
  done,
  again,  ///< was done, and has lost a device since; as intent, but pods may have the devices
};
inline constexpr Words<ClaimPhase, 3> kClaimPhases = {
    {{"intent", ClaimPhase::intent}, {"done", ClaimPhase::done}, {"again", ClaimPhase::again}}};
constexpr const auto& words_of(ClaimPhase /*phase*/) {
  return kClaimPhases;
}

struct ClaimedGpu {
  vfio::PciAddress address;
  /// The virtual functions that the GPU had before the claim. It loses them if it goes to a VM whole. 0:
  /// none, or the whole GPU was on vfio.
  std::uint32_t functions = 0;
  bool operator==(const ClaimedGpu&) const = default;
};

struct ClaimedDevice {
  api::RequestedDevice request;
  /// All GPUs of the IOMMU group of a whole device. Else the GPU of the vGPU.
  std::vector<ClaimedGpu> gpus = {};
  /// The whole device was on vfio before the claim, and stays there after it.
  bool was_on_vfio = false;
  /// The UUID or virtual function that was chosen for the vGPU; the nodes only with ClaimPhase::done.
  api::PreparedDevice result = {};
  /// api::DeviceOfPod::resources at the first request. The variables of a container keep these names, also if
  /// the DeviceClass gets another one.
  std::vector<std::string> resources = {};

  bool is_whole() const { return request.type.empty(); }
  /// The address of its function, or the UUID of its mediated device.
  std::string id() const { return result.function ? result.function->text() : result.mdev_uuid; }
  bool operator==(const ClaimedDevice&) const = default;
};

struct Claim {
  std::string uid;
  std::string space;  ///< namespace
  std::string name;
  ClaimPhase phase = ClaimPhase::intent;
  std::vector<ClaimedDevice> devices = {};  ///< in order of the request

  /// "claim studio/render-a"
  std::string label() const;
  bool operator==(const Claim&) const = default;
};

/// A GPU that had fewer virtual functions after a claim than before it.
struct MissingFunctions {
  vfio::PciAddress gpu;
  std::uint32_t functions = 0;  ///< before the claim
  std::string reason = {};      ///< of the failure to enable them again; empty: none is known
  bool operator==(const MissingFunctions&) const = default;
};

struct ClaimRecord {
  std::string boot_id;
  std::vector<Claim> claims = {};  ///< in order of UID
  /// Each GPU once, in order. A GPU whose functions are back stays here until the next claim.
  std::vector<MissingFunctions> missing_functions = {};
  std::vector<std::string> made_functions = {};  ///< addresses of GPUs whose functions hostd has enabled

  /// nullptr: there is no such claim.
  const Claim* find(std::string_view uid) const;
  /// Adds the claim, or replaces the one with its UID.
  void put(Claim claim);
  void remove(std::string_view uid);
  /// A claim other than `uid` that has the GPU whole; with `whole` also one that has a vGPU of it. nullptr:
  /// there is none.
  const Claim* in_the_way(const vfio::PciAddress& gpu, std::string_view uid, bool whole) const;
  std::set<vfio::PciAddress> gpus() const;
  /// Adds the entry, or replaces the one of its GPU.
  void put(MissingFunctions missing);
  void remove_missing(const vfio::PciAddress& gpu);
  /// nullptr: the GPU lacks none.
  const MissingFunctions* missing_of(const vfio::PciAddress& gpu) const;
  bool operator==(const ClaimRecord&) const = default;
};

std::string claim_record_text(const ClaimRecord& record);
/// Errc::malformed_host: no such record; the message has the place.
Result<ClaimRecord> read_claim_record(std::string_view text);

/// The record of the running boot; empty if there is none, or if it is of another boot. Errors: the boot ID
/// or the file cannot be read. The claims are not known then, so nothing may be changed for any.
Result<ClaimRecord> load_claim_record(const HostFs& host);
/// Errors: the file cannot be written.
Result<> store_claim_record(HostFs& host, const ClaimRecord& record);

struct GpusWithClaims {
  /// The GPUs that claims have, in whole or in part. A change by a policy leaves these alone.
  std::set<vfio::PciAddress> gpus = {};
  std::vector<MissingFunctions> missing_functions = {};
  std::vector<std::string> made_functions = {};
  std::vector<Claim> prepared = {};  ///< pods may have their devices: not ClaimPhase::intent
  /// Why the record cannot be read. Each GPU for DRA (kClaimableGpusFile) may have a claim then, so that
  /// `gpus` has all of them. Absent: it was read.
  std::optional<Error> fault = {};
};

/// Errors: those of the record, if kClaimableGpusFile cannot be read either. Any GPU may have a claim then.
Result<GpusWithClaims> gpus_with_claims(const HostFs& host);

/// The GPUs that lack virtual functions now, with a sentence for people. A GPU on a vfio driver has none by
/// right.
std::map<vfio::PciAddress, std::string> gpus_without_functions(const std::vector<MissingFunctions>& missing,
                                                               const vfio::Inventory& inventory);

}  // namespace ferry::host
