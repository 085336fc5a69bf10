// SPDX-License-Identifier: Apache-2.0
// Plans the fewest writes that make the host agree with a profile: pure functions.
//
// A vGPU that fits stays, with its UUID and virtual function. On a matched GPU every other vGPU is removed,
// whoever made it, as under NVIDIA's program. A vGPU in use is never removed: its whole GPU is refused. Room
// is checked before the first removal. A GPU that no item matches is left as it is.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "mdev/gpu_management.h"
#include "mdev/stuck_gpus.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/quiesce/release.h"
#include "vfio/use_probe.h"
#include "vgpu-dm/plan/vgpu_step.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::vgpu {

struct VgpuSnapshot {
  mdev::VgpuInventory inventory;
  vfio::UseReport use = {};
  std::string node = {};  ///< node identity, stable_uuid.h
  mdev::StuckGpus stuck = {};
  /// NVML's answer about each GPU that it was asked about, or its error.
  std::map<vfio::PciAddress, Result<mdev::ManagedGpu>> managed = {};
  /// nullptr: NVML was not asked about the GPU, or gave no answer.
  const mdev::ManagedGpu* managed_gpu(const vfio::PciAddress& gpu) const {
    const auto found = managed.find(gpu);
    return found == managed.end() || !found->second ? nullptr : &*found->second;
  }
  std::set<std::string> release = {};  ///< device users that may be quiesced, as far as this host can
  bool persistence_by_gpu = false;     ///< RebindRequest::persistence_by_gpu
  bool spares_foreign = false;         ///< VgpuHost::spares_foreign
  /// Virtual functions that the undo journal shows Ferry to have bound to a VFIO driver since this boot.
  std::set<vfio::PciAddress> bound_by_ferry = {};
};

struct GpuPlan {
  unsigned index = 0;
  vfio::PciAddress gpu;
  bool matched = false;                 ///< false: no item matches it, and nothing is done
  std::string place = {};               ///< where the item is written: "profiles.yaml:7"
  std::vector<TypeCount> desired = {};  ///< type names as in the profile
  std::vector<TypeCount> found = {};
  std::vector<mdev::VgpuId> kept = {};
  /// Steps in stages: MIG mode, virtual functions, GPU instances, removals, creations. A scan follows each
  /// kind. Empty: already so, or refused.
  std::vector<VgpuStep> steps = {};
  /// Steps expected after `steps`. The GPU is scanned again before them, so they may differ. Empty unless
  /// `steps` switches MIG mode or virtual functions.
  std::vector<VgpuStep> later = {};
  /// vGPUs to make after the steps. They cannot be planned yet: the driver lists their types only then, if at
  /// all.
  std::vector<TypeCount> then = {};
  /// Device users to quiesce before the steps and to resume at the end.
  std::set<vfio::Releasable> releases = {};
  /// Codes: Errc::refused (in use), invalid_config (no such type, no room), unsupported (framework), stuck,
  /// or the scan's own.
  std::optional<Error> refusal = {};
  std::vector<std::string> reasons = {};  ///< each reason alone, if device users are among them; else empty
  std::vector<std::string> notes = {};
  /// Whether the GPU fits or has all the vGPUs shows only when they are made.
  bool not_known = false;

  std::string label() const;  ///< see VgpuGpu::label
};

/// Each reason of a refusal alone: `reasons`, or else the error's message.
std::vector<std::string> reasons_of(const Error& refusal, const std::vector<std::string>& reasons);

struct VgpuPlan {
  std::vector<GpuPlan> gpus;       ///< all GPUs, in order of index
  std::vector<std::string> notes;  ///< items that match no GPU, users that could not be probed
  bool writes_nothing() const;
};

VgpuPlan plan_profile(const Profile& profile, const VgpuSnapshot& snapshot);
GpuPlan plan_profile(const Profile& profile, const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu);

struct Removal {
  std::set<vfio::PciAddress> gpus;  ///< empty: all
  /// True: vGPUs that do not show that Ferry made them are removed too. The UUID shows it, or for a whole
  /// virtual function the undo journal; a vGPU of vendor-specific VFIO has neither.
  bool foreign = false;
  /// The removal is of this vGPU alone, if it has the type; no ID: every vGPU of the GPUs.
  mdev::VgpuId only = {};
  std::string only_type = {};
};
VgpuPlan plan_removal(const Removal& removal, const VgpuSnapshot& snapshot);
GpuPlan plan_removal(const Removal& removal, const VgpuSnapshot& snapshot, const mdev::VgpuGpu& gpu);

/// Rolls one GPU back to `before`, from a scan made now. vGPUs made since are removed unless in use. Missing
/// vGPUs are made again under their old UUIDs, on their old functions unless a vGPU stays there. Virtual
/// functions are switched as before if no vGPU stays on them and they are not in use.
std::vector<VgpuStep> plan_undo(const mdev::VgpuGpu& before, const mdev::VgpuGpu& now,
                                const vfio::UseReport& use);

/// Differences from `before` that no step would restore, as clauses ("vGPU … (T4-4Q) is gone: another one is
/// on …"). vGPUs that another program made since stay, and may be in the way.
std::vector<std::string> not_put_back(const mdev::VgpuGpu& before, const mdev::VgpuGpu& now);

}  // namespace ferry::vgpu
