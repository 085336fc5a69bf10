// SPDX-License-Identifier: Apache-2.0
// The record of the users of each GPU and of the resets between them. hostd writes it, and so does
// `ferry claims release`; it outlives a reboot. `ferry history` prints it, and each judgement of a GPU reads
// from it whether VMs must wait for it.
//
//   {"version": 1, "policy": "required", "gpus": [
//     {"address": "0000:17:00.0", "id": "10de:2331", "boot_id": "...", "binding": 31207, "status": {...},
//      "events": [{"at": 1796000000, "state": "in_use", "text": "pod games/vm-1"}]}]}
//
// `status` has the keys of api::SanitizeStatus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api/host_status.h"
#include "api/words.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

inline constexpr const char* kGpuHistoryFile = "var/lib/ferry-hostd/gpus/history.json";
inline constexpr int kGpuHistoryVersion = 1;
/// A record that is malformed is kept there.
inline constexpr const char* kBadGpuHistoryFile = "var/lib/ferry-hostd/gpus/history.json.bad";
/// Older events of a GPU are forgotten.
inline constexpr std::size_t kMostEvents = 64;

/// "0000:17:00.0 is being sanitized after its last use"; empty: a VM may have it.
std::string why_not_available(const vfio::PciAddress& gpu, const api::SanitizeStatus& status);

struct GpuEvent {
  std::uint64_t at = 0;                                      ///< in seconds since 1970
  api::SanitizeState state = api::SanitizeState::available;  ///< from then on
  /// The user, the result of the sanitizing, or the reason for one without a user.
  std::string text = {};
  bool operator==(const GpuEvent&) const = default;
};

struct GpuHistory {
  vfio::PciAddress address;
  std::string id;             ///< "10de:2331": another card in its slot has a history of its own
  std::string boot_id = {};   ///< of the binding
  std::uint64_t binding = 0;  ///< vfio::binding_of() when it was last in a VM's reach
  api::SanitizeStatus status = {};
  std::vector<GpuEvent> events = {};  ///< the oldest first

  /// True if nothing but this host's VMs can have had the GPU since its last event: it was bound in this
  /// boot, and not again since.
  bool knows(const std::string& boot, std::uint64_t bound) const {
    return !boot_id.empty() && boot_id == boot && binding != 0 && binding == bound;
  }
  /// Changes the state, with an event. `now`: seconds since 1970.
  void enter(api::SanitizeState state, std::string text, std::uint64_t now);
  bool operator==(const GpuHistory&) const = default;
};

struct GpuHistories {
  policy::Sanitize policy = policy::Sanitize::off;  ///< of the node, as hostd has read it last
  std::vector<GpuHistory> gpus = {};                ///< in order of address

  /// nullptr: it has none.
  const GpuHistory* find(const vfio::PciAddress& gpu) const;
  GpuHistory* find(const vfio::PciAddress& gpu);
  /// The history of this card. Begins one if the address has none, or that of another card.
  GpuHistory& of(const vfio::PciAddress& gpu, const std::string& id);
  bool operator==(const GpuHistories&) const = default;
};

std::string gpu_histories_text(const GpuHistories& histories);
/// Errc::malformed_host: no such record; the message has the place.
Result<GpuHistories> read_gpu_histories(std::string_view text);

/// Empty if there is no record. Errors: it cannot be read.
Result<GpuHistories> load_gpu_histories(const HostFs& host);
/// Errors: the file cannot be written.
Result<> store_gpu_histories(HostFs& host, const GpuHistories& histories);
/// Copies a malformed record to kBadGpuHistoryFile. The caller stores a new one in its place. Errors: the
/// record cannot be copied.
Result<> keep_bad_gpu_histories(HostFs& host);

/// Changes the record as it is now: hostd and `ferry claims release` may both write it.
Result<> change_gpu_histories(HostFs& host, const std::function<void(GpuHistories& histories)>& change);

/// The GPUs that no VM may get now, with the reason as a sentence without its full stop, for
/// vfio::Observed::unsanitized. Errors: those of load_gpu_histories().
Result<std::map<vfio::PciAddress, std::string>> unsanitized_gpus(const HostFs& host);

}  // namespace ferry::host
