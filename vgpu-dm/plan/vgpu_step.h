// SPDX-License-Identifier: Apache-2.0
// Steps of a plan, each one change of a GPU, and counts of types.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mdev/vgpu.h"

namespace ferry::vgpu {

/// Makes or removes a vGPU, sets its parameters, or prepares its GPU.
struct VgpuStep {
  enum class Kind {
    enable_vfs,
    remove,
    create,
    set_params,
    set_placement,
    disable_vfs,
    set_mig,
    make_instance,
    remove_instance,
    set_mixed_sizes,
    set_autoprobe,
  };
  Kind kind = Kind::create;
  const mdev::Framework* framework = &mdev::no_framework();  ///< makes the writes; never nullptr
  mdev::VgpuId id = {};
  vfio::PciAddress parent = {};  ///< the GPU itself for steps on virtual functions
  /// Number of virtual functions; number of the GPU instance to remove, or of the profile to make; 1 or 0 for
  /// a mode or a setting on or off. 0 for steps on vGPUs.
  std::uint32_t number = 0;
  std::string type_id = {};     ///< "nvidia-230"
  std::string short_name = {};  ///< "T4-1Q"; for a GPU instance its profile, "2g.35gb"
  std::string why = {};
  std::string params = {};  ///< text to write, for set_params
  /// Placement ID, for set_placement and create. Absent: the driver chooses.
  std::optional<std::uint32_t> placement = {};
  bool for_host = false;  ///< of enable_vfs: see mdev::Framework::enable_functions()

  /// The changed object, which decides how a step is applied and verified.
  enum class Target {
    vgpu,       ///< makes, removes or sets a vGPU by its framework; a scan of the GPU's vGPUs verifies it
    functions,  ///< switches virtual functions by the driver's tool or sysfs; a scan verifies it
    library,    ///< applied and verified by the driver's library alone
  };
  Target target() const;
  /// True if vfio/ makes or removes the vGPU (mdev::Framework::binds_functions()).
  bool binds_function() const;
  /// True if the step needs a GPU that no process has open.
  bool needs_gpu_free() const;
  /// True if the step leaves existing vGPUs as they are, so that their users need not be known.
  bool only_adds() const;
  /// "create T4-1Q 5b6c0f0e-... on 0000:17:00.0"; if the parent is the id, "create L40S-12Q on 0000:17:00.4";
  /// "enable 16 virtual functions of 0000:17:00.0"
  std::string text() const;
  bool operator==(const VgpuStep&) const = default;
};

/// Number of vGPUs of a type, under the profile's name or the short name.
struct TypeCount {
  std::string type;
  std::uint32_t count = 0;
  auto operator<=>(const TypeCount&) const = default;
};
/// "2 x T4-4Q, 1 x T4-8Q"; "none"
std::string text(const std::vector<TypeCount>& counts);

}  // namespace ferry::vgpu
