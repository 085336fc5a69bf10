// SPDX-License-Identifier: Apache-2.0
// From an amount of memory to the vGPU type that gives it: a pure function of a scan.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry {

struct TypeWish {
  std::uint32_t framebuffer_mib = 0;  ///< at least so much
  std::optional<char> series;         ///< A, B, C or Q; absent: any
};

/// A type that gives what is wished for, and of which at least one can be made now.
struct TypeFit {
  std::string id;  ///< as in VgpuType
  std::string name;
  std::string short_name;  ///< what a profile calls it
  std::uint32_t framebuffer_mib = 0;
  bool by_its_name = false;  ///< the driver does not say the size: it is the number in the name, about right
  std::uint32_t left = 0;    ///< how many more can be made
};

struct GpuChoice {
  unsigned index = 0;
  PciAddress gpu;
  std::optional<TypeFit> fit;
  /// Set where there is no fit. Errc::refused: a type would fit, but what the GPU carries leaves no room for
  /// it now. Errc::unsupported: the GPU has no such type, and the largest is named; or it can carry no vGPU.
  std::optional<Error> reason;
};

struct Choice {
  std::vector<GpuChoice> gpus;      ///< in order of index
  std::optional<TypeFit> smallest;  ///< of all their fits; `left` is how many all of them together have
  /// Set where no GPU has a fit: one reason for all. Codes as GpuChoice::reason.
  std::optional<Error> reason;
};

/// For each GPU the type with the least memory that is enough; of one size Q before C before B before A,
/// since the earlier ones can do more. Only types that a profile can name are considered. `gpus` empty: all.
Choice choose_types(const VgpuInventory& inventory, const std::set<PciAddress>& gpus, const TypeWish& wish);

}  // namespace ferry
