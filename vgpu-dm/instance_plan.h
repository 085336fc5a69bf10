// SPDX-License-Identifier: Apache-2.0
// From the MIG-backed vGPUs that a GPU shall carry to the GPU instances that it needs: a pure function.
//
// One GPU instance carries vGPUs of one framebuffer size, of whatever series, and so many of them as its
// profile has memory for. Which profile a type needs is never taken from its name.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "mdev/gpu_management.h"
#include "vgpu-dm/type_name.h"
#include "vgpu-dm/type_table.h"

namespace ferry {

/// A vGPU that stays, and so does the GPU instance that it is on.
struct StayingVgpu {
  std::string id;
  std::uint32_t instance = 0;
};

/// All vGPUs of a type that the GPU shall carry, those that it carries already among them.
struct InstanceWant {
  VgpuTypeName type;
  std::uint32_t count = 0;
  std::string place;                      ///< "profiles.yaml:12"
  std::vector<StayingVgpu> staying = {};  ///< those of them that tell which GPU instance they are on
};

struct InstanceStep {
  enum class Kind { remove, make };
  Kind kind = Kind::make;
  std::uint32_t number = 0;  ///< of the instance that goes; of the profile that is made
  std::string profile;       ///< "2g.35gb"
  std::string why;

  /// "make a GPU instance 2g.35gb", "remove GPU instance 3 (2g.35gb)"
  std::string text() const;
  bool operator==(const InstanceStep&) const = default;
};

struct InstancePlan {
  std::vector<InstanceStep> steps;  ///< removals first, then the largest; empty: they are there, or refused
  /// Errc::unsupported: neither the driver nor our table knows what a type needs, or the GPU has no such
  /// profile; Errc::invalid_config: they do not fit on the GPU, alone or beside each other.
  std::optional<Error> refusal;
};

/// Instances that nobody needs stay unless they are, or may be, in the way; of the needed ones that carry
/// nothing those go, to be made anew, that are where others have to be. `busy` are those that carry vGPUs
/// which stay: on them is room for what has their size, and for nothing else.
InstancePlan plan_instances(std::string_view label, std::span<const InstanceWant> wants,
                            const ManagedGpu& gpu, const BoardTypes& board,
                            const std::set<std::uint32_t>& busy);

}  // namespace ferry
