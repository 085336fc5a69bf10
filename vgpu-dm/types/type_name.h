// SPDX-License-Identifier: Apache-2.0
// Names of vGPU types as profiles write them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry::vgpu {

/// Suffix after the series letter of a MIG-backed name. `me` (media engines) is part of the driver's own
/// name. The others only choose the GPU instance; no driver ends a name in them.
enum class MigAttribute { none, me, nome, meall, gfx };

/// "L40S-12Q", "RTX6000-Ada-24Q" (time-sliced) or "H100-1-10CME" (MIG-backed). Case matters.
struct VgpuTypeName {
  std::string board;
  std::optional<std::uint32_t> slices;  ///< 1..9; only in a MIG-backed name
  std::uint32_t size_gib = 0;           ///< nominal; 0 stands for 512 MiB
  char series = 'Q';                    ///< A, B, C or Q
  MigAttribute attribute = MigAttribute::none;

  /// Errc::invalid_config describes a valid name.
  static Result<VgpuTypeName> parse(std::string_view text);

  bool is_mig_backed() const { return slices.has_value(); }
  std::string text() const;
  /// The driver's short name for it: without NOME, MEALL and GFX.
  std::string driver_short_name() const;
  bool operator==(const VgpuTypeName&) const = default;
};

/// The offered type with exactly this short name, else the type without NOME, MEALL or GFX. nullptr: none.
/// Errc::unsupported: two types have that short name.
Result<const mdev::VgpuType*> find_type(const VgpuTypeName& name, std::span<const mdev::VgpuType> offered);

}  // namespace ferry::vgpu
