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
#include "vfio/use_probe.h"
#include "vgpu-dm/profile.h"

namespace ferry {

/// All that a plan is made from.
struct VgpuView {
  VgpuInventory inventory;
  UseReport use;
  std::string node;             ///< node identity, stable_uuid.h
  std::set<std::string> stuck;  ///< GPUs, virtual functions and vGPUs that a write in the kernel still holds
  /// What NVML said of those GPUs that it was asked about, or why it said nothing.
  std::map<PciAddress, Result<ManagedGpu>> managed = {};
};

/// One vGPU made or taken away, its plug-in's parameters set, or what has to be there before.
struct VgpuStep {
  enum class Kind {
    enable_vfs,
    remove,
    create,
    set_params,
    disable_vfs,
    set_mig,
    make_instance,
    remove_instance,
    set_mixed_sizes,
  };
  Kind kind = Kind::create;
  VgpuFramework framework = VgpuFramework::none;  ///< how: vgpu_writes.h
  VgpuId id;
  PciAddress parent;  ///< of virtual functions the GPU
  /// How many virtual functions; the GPU instance that goes, the profile of one that is made; whether a mode
  /// is on. 0 of a vGPU.
  std::uint32_t number = 0;
  std::string type_id;     ///< "nvidia-230"
  std::string short_name;  ///< "T4-1Q"; of a GPU instance its profile, "2g.35gb"
  std::string why;
  std::string params = {};  ///< of set_params: the text that is written

  bool of_functions() const { return kind == Kind::enable_vfs || kind == Kind::disable_vfs; }
  bool of_a_vgpu() const { return kind == Kind::remove || kind == Kind::create || kind == Kind::set_params; }
  /// "create T4-1Q 5b6c0f0e-... on 0000:17:00.0"; where the parent is the id, "create L40S-12Q on
  /// 0000:17:00.4"; "enable 16 virtual functions of 0000:17:00.0"
  std::string text() const;
  bool operator==(const VgpuStep&) const = default;
};

/// So many of a type: as the profile names it, or its short name.
struct TypeCount {
  std::string type;
  std::uint32_t count = 0;
  auto operator<=>(const TypeCount&) const = default;
};
/// "2 x T4-4Q, 1 x T4-8Q"; "none"
std::string text(const std::vector<TypeCount>& counts);

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
  /// What is to be made after the steps and cannot be planned before: the driver lists it only then, if at
  /// all.
  std::vector<TypeCount> then = {};
  std::optional<Error> refusal = {};  ///< Errc: refused (in use), invalid_config (no such type, no room),
                                      ///< unsupported (framework), stuck, or the scan's own
  std::vector<std::string> notes = {};

  std::string label() const;  ///< as VgpuGpu::label
};

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
/// and virtual functions that were not there are switched off, if nothing stays on them.
std::vector<VgpuStep> plan_undo(const VgpuGpu& before, const VgpuGpu& now, const UseReport& use);

}  // namespace ferry
