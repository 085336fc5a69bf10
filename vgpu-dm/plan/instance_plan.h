// SPDX-License-Identifier: Apache-2.0
// Plans the GPU instances that a GPU's MIG-backed vGPUs need: a pure function.
//
// A GPU instance carries vGPUs of one framebuffer size, of any series, as many as its profile has memory for.
// The profile that a type needs is never taken from the type's name.
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
#include "vgpu-dm/types/type_name.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::vgpu {

/// A vGPU that stays, together with its GPU instance.
struct StayingVgpu {
  std::string id;
  std::uint32_t instance = 0;
};

/// All vGPUs of a type that the GPU will carry, including existing ones.
struct InstanceWant {
  VgpuTypeName type;
  std::uint32_t count = 0;
  std::string place;                      ///< "profiles.yaml:12"
  std::vector<StayingVgpu> staying = {};  ///< existing ones whose GPU instance is known
};

struct InstanceStep {
  enum class Kind { remove, make };
  Kind kind = Kind::make;
  std::uint32_t number = 0;  ///< the instance to remove, or the profile to make
  std::string profile;       ///< "2g.35gb"
  std::string why;

  /// "make a GPU instance 2g.35gb", "remove GPU instance 3 (2g.35gb)"
  std::string text() const;
  bool operator==(const InstanceStep&) const = default;
};

struct InstancePlan {
  std::vector<InstanceStep> steps;  ///< removals first, then the largest; empty: all exist, or refused
  /// Errc::unsupported: neither the driver nor the table knows a type's profile, or the GPU lacks it.
  /// Errc::invalid_config: the instances do not fit on the GPU, alone or together.
  std::optional<Error> refusal;
};

/// Unneeded instances stay unless they are, or may be, in the way. A needed instance without vGPUs is removed
/// and made anew if another instance must begin in its place. `busy` instances carry vGPUs that stay: they
/// have room only for vGPUs of the same size.
InstancePlan plan_instances(std::string_view label, std::span<const InstanceWant> wants,
                            const mdev::ManagedGpu& gpu, const BoardTypes& board,
                            const std::set<std::uint32_t>& busy);

}  // namespace ferry::vgpu
