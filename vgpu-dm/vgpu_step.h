// SPDX-License-Identifier: Apache-2.0
// What plans are made of: one change of a GPU at a time, and counts of types.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mdev/vgpu.h"

namespace ferry {

/// One vGPU made or taken away, its plug-in's parameters set, or what has to be there before.
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
  /// Of set_placement and create: where in the GPU's memory. Absent: where the driver puts it.
  std::optional<std::uint32_t> placement = {};

  /// What a step changes, and with it who carries it out and who is asked whether it held.
  enum class Target {
    vgpu,       ///< an attribute of the driver's is written, the GPU's vGPUs are read
    functions,  ///< the GPU's virtual functions: the driver's tool or sysfs, a scan
    library,    ///< what the driver's library alone sees to
  };
  Target target() const;
  /// Is done only to a GPU that nobody has open.
  bool needs_gpu_free() const;
  /// Leaves what is there as it is: nobody need be asked who uses that.
  bool only_adds() const;
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

}  // namespace ferry
