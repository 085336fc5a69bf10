// SPDX-License-Identifier: Apache-2.0
// The steps of a GPU from one user to the next: in_use, sanitizing, available, or failed. Pure, but for
// SanitizeRuns, which has the resets that other threads make.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/host_status.h"
#include "common/pinned.h"
#include "host/sanitize/gpu_history.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "policy/policy.h"
#include "vfio/confidential/mode_change.h"
#include "vfio/pci/pci_address.h"
#include "vfio/registers/register_facts.h"
#include "vfio/sanitize/sanitizing.h"

namespace ferry::host {

/// The facts of a round about a GPU on vfio-pci.
struct SanitizeFacts {
  std::string user = {};  ///< the pod, claim or program that has it; empty: none
  /// api::AdvertisedDevice::used_since: a pod may have had it so shortly that no round has seen it.
  std::optional<std::uint64_t> used_since = {};
  std::string boot_id = {};
  std::uint64_t binding = 0;    ///< vfio::binding_of(): under another one, other programs have had the GPU
  bool is_asked = false;        ///< an administrator asks for it
  std::string wrong_mode = {};  ///< why its confidential mode is to be changed; empty: it is not
};

/// Follows the users of a GPU. A GPU without a user is to be sanitized if it had one since, or if its past is
/// not known. `now`: seconds since 1970.
void follow(GpuHistory& gpu, const SanitizeFacts& facts, std::uint64_t now);

/// A reset, with its duration.
struct SanitizeRun {
  vfio::Sanitizing result;
  std::chrono::milliseconds took{0};
  std::optional<vfio::WantedMode> mode = {};  ///< the confidential mode that was to be set before it
  bool mode_refused = false;                  ///< `mode` was not tried: something was in the way
};

/// vfio::sanitize(), or a test's stand-in.
using Sanitizer =
    std::function<vfio::Sanitizing(HostWriter& writer, const HostFs& host, const vfio::PciAddress& gpu)>;
SanitizeRun run_sanitizer(const Sanitizer& sanitize, HostWriter& writer, const HostFs& host,
                          const vfio::PciAddress& gpu);
Sanitizer default_sanitizer();

/// vfio::set_modes() for one GPU, or a test's stand-in.
using ModeSetter = std::function<vfio::ModeOutcome(HostWriter& writer, HostFs& host,
                                                   const vfio::PciAddress& gpu, vfio::WantedMode mode)>;
/// Takes the node's lock, and first undoes a change that was interrupted. Refuses a GPU in protected PCIe.
ModeSetter default_mode_setter();
/// Sets the mode of a GPU, and sanitizes it. A GPU whose mode is left open is not reset.
SanitizeRun run_with_mode(const ModeSetter& set_mode, const Sanitizer& sanitize, HostWriter& writer,
                          HostFs& host, const vfio::PciAddress& gpu, vfio::WantedMode mode);

/// Why the confidential mode of a GPU is to be changed: its register shows another than the desired one.
/// Empty: it is right, unknown, or that of a whole board, which no GPU leaves alone.
std::string wrong_mode(const api::AcceleratorStatus& gpu, vfio::WantedMode desired);

/// Seconds since 1970.
std::uint64_t seconds_now();

/// The user of a GPU that neither the kubelet nor a claim knows.
inline constexpr const char* kUnknownUser = "a program that has opened its group";

/// Enters the end of a sanitizing. A GPU that is in use stays with kUnknownUser.
void finish(GpuHistory& gpu, const SanitizeRun& run, policy::Sanitize policy, std::uint64_t now);

/// Makes a GPU that failed available without a proof, as an administrator has decided.
void accept(GpuHistory& gpu, std::uint64_t now);

/// The resets that run beside the rounds. Any thread may call.
class SanitizeRuns : Pinned {
 public:
  /// False: one of this GPU runs, or has ended and is not taken yet.
  bool begin(const vfio::PciAddress& gpu);
  void end(const vfio::PciAddress& gpu, SanitizeRun run);
  /// True from begin() until its result is taken.
  bool has(const vfio::PciAddress& gpu) const;
  bool any() const;
  bool any_ended() const;
  /// The runs that have ended since the last call.
  std::map<vfio::PciAddress, SanitizeRun> take();

 private:
  mutable std::mutex mutex_;
  std::map<vfio::PciAddress, std::optional<SanitizeRun>> runs_;
};

}  // namespace ferry::host
