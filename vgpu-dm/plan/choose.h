// SPDX-License-Identifier: Apache-2.0
// Selects the vGPU type for an amount of memory: a pure function of a scan.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "mdev/vgpu.h"

namespace ferry::vgpu {

/// Parses an amount of memory as a person writes it ("6GiB", "4096MiB", "6G") into MiB, rounded up.
///
/// The text is a whole number above 0 and its unit, without a blank. Units are powers of two (MiB, GiB, TiB,
/// or Mi, Gi, Ti as in Kubernetes) or of ten (MB, GB, TB, or M, G, T). So 6G is 5723 MiB. Letter case
/// matters. Errc::usage names the fault and the right form.
Result<std::uint32_t> parse_memory_mib(std::string_view text);

struct TypeRequest {
  std::uint32_t framebuffer_mib = 0;  ///< the least amount
  std::optional<char> series;         ///< A, B, C or Q; absent: any
};

struct GpuChoice {
  unsigned index = 0;
  vfio::PciAddress gpu;
  /// Fulfils the request, and `available` counts on the whole GPU, as for types_of(): at least 1.
  std::optional<mdev::VgpuType> fit;
  /// Set if no type matches. Errc::refused: the present vGPUs leave no capacity now. Errc::unsupported: the
  /// GPU has no such type (the message names the largest), no profile can name it, or its driver makes none.
  std::optional<Error> reason;
  /// The type of the requested series with the most memory, whatever its memory is; absent: it has none.
  std::optional<mdev::VgpuType> largest;
};

struct Choice {
  std::vector<GpuChoice> gpus;  ///< in order of index
  /// Among all fits; `available` is the sum over the GPUs that chose this type.
  std::optional<mdev::VgpuType> smallest;
  /// Set if no GPU has a matching type: a common reason. Codes as GpuChoice::reason.
  std::optional<Error> reason;
};

/// Picks for each GPU the type with the least memory that is enough. Among types of one size the order is Q,
/// C, B, A, since earlier ones can do more. Types that no profile can name are left out. `gpus` empty: all.
Choice choose_types(const mdev::VgpuInventory& inventory, const std::set<vfio::PciAddress>& gpus,
                    const TypeRequest& desired_state);

}  // namespace ferry::vgpu
