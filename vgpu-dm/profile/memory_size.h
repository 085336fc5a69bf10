// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"

namespace ferry::vgpu {

/// Parses an amount of memory as a person writes it ("6GiB", "4096MiB", "6G") into MiB, rounded up.
///
/// The text is a whole number above 0 and its unit, without a blank. Units are powers of two (MiB, GiB, TiB,
/// or Mi, Gi, Ti as in Kubernetes) or of ten (MB, GB, TB, or M, G, T). So 6G is 5723 MiB. Letter case
/// matters. Errc::usage names the fault and the right form.
Result<std::uint32_t> parse_memory_mib(std::string_view text);

}  // namespace ferry::vgpu
