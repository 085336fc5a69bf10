// SPDX-License-Identifier: Apache-2.0
// From a profile and a scan to the fewest writes that make the host agree: pure functions.
//
// A vGPU that fits stays, UUID, virtual function and all. On a matched GPU whatever the profile does not ask
// for goes, whoever made it, as under NVIDIA's program; but nothing in use is ever removed: then the GPU is
// refused whole. Room for what is asked is checked before the first removal. A GPU that no item matches is
// left as it is.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "mdev/gpu_management.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/release.h"
#include "vfio/use_probe.h"
#include "vgpu-dm/profile.h"
#include "vgpu-dm/vgpu_step.h"

namespace ferry {

/// All that a plan is made from.
struct VgpuView {
  VgpuInventory inventory;
  UseReport use;
  std::string node;             ///< node identity, stable_uuid.h
  std::set<std::string> stuck;  ///< GPUs, virtual functions and vGPUs that a write in the kernel still holds
  /// What NVML said of those GPUs that it was asked about, or why it said nothing.
  std::map<PciAddress, Result<ManagedGpu>> managed = {};
  std::set<std::string> release = {};  ///< who may be asked to let go of GPUs, as far as this host can
  bool persistence_by_gpu = false;     ///< MoveRequest::persistence_by_gpu
  bool spares_foreign = false;         ///< VgpuHost::spares_foreign
};

struct GpuPlan {
  unsigned index = 0;
  PciAddress gpu;
  bool matched = false;                ///< false: no item is for it; nothing is done
  std::string place = {};              ///< of the item: "profiles.yaml:7"
  std::vector<TypeCount> wanted = {};  ///< names as the profile writes them
  std::vector<TypeCount> found = {};
  std::vector<VgpuId> kept = {};
  /// In stages: MIG mode, virtual functions, GPU instances, removals, creations, each kind after a scan that
  /// has seen the one before. Empty: already so, or refused.
  std::vector<VgpuStep> steps = {};
  /// Stages behind those, as they are foreseen: before them the GPU is looked at again. Empty unless one of
  /// the steps changes what the GPU tells (MIG mode, its virtual functions).
  std::vector<VgpuStep> later = {};
  /// What is to be made after the steps and cannot be planned before: the driver lists it only then, if at
  /// all.
  std::vector<TypeCount> then = {};
  /// Who lets go of the GPU before the steps, and takes hold again at the end of all.
  std::set<Releasable> releases = {};
  std::optional<Error> refusal = {};      ///< Errc: refused (in use), invalid_config (no such type, no room),
                                          ///< unsupported (framework), stuck, or the scan's own
  std::vector<std::string> reasons = {};  ///< each by itself, where users are among them; else empty
  std::vector<std::string> notes = {};

  std::string label() const;  ///< as VgpuGpu::label
};

/// Each reason of a refusal by itself: `reasons`, or else what the error says.
std::vector<std::string> reasons_of(const Error& refusal, const std::vector<std::string>& reasons);

struct VgpuPlan {
  std::vector<GpuPlan> gpus;       ///< all GPUs, in order of index
  std::vector<std::string> notes;  ///< items that match no GPU, what could not be asked
  bool writes_nothing() const;
};

/// Makes the node agree with a profile.
VgpuPlan plan_profile(const Profile& profile, const VgpuView& view);
/// One GPU of the view alone.
GpuPlan plan_profile(const Profile& profile, const VgpuView& view, const VgpuGpu& gpu);

struct Removal {
  std::set<PciAddress> gpus;  ///< empty: all
  /// Also those of which nothing shows that Ferry made them: the UUID does, and a vGPU of vendor-specific
  /// VFIO has none.
  bool foreign = false;
};
/// Takes vGPUs away.
VgpuPlan plan_removal(const Removal& removal, const VgpuView& view);
GpuPlan plan_removal(const Removal& removal, const VgpuView& view, const VgpuGpu& gpu);

/// The way back to `before` for one GPU, from a scan made now: what was made meanwhile goes unless it is in
/// use, what is missing is made again under its old UUID, on its old function unless something stays on it;
/// and virtual functions are switched off, or on, as they were, if nothing stays on them and nobody uses
/// them.
std::vector<VgpuStep> plan_undo(const VgpuGpu& before, const VgpuGpu& now, const UseReport& use);

/// What is not as it was although no step is left that would put it back, as clauses ("vGPU … (T4-4Q) is
/// gone: another one is on …"): what somebody else has made meanwhile stays, and may stand in the way.
std::vector<std::string> not_put_back(const VgpuGpu& before, const VgpuGpu& now);

}  // namespace ferry
