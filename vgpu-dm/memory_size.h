// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// An amount of memory as a person writes it, in MiB, rounded up to whole ones: "6GiB", "4096MiB", "6G".
///
/// A whole number above 0 and its unit, without a blank: powers of two (MiB, GiB, TiB, or Mi, Gi, Ti as
/// Kubernetes has them) or of ten (MB, GB, TB, or M, G, T), so that 6G is 5723 MiB. Letter case matters.
/// Errc::usage says what is wrong and how to write it.
Result<std::uint32_t> parse_memory_mib(std::string_view text);

}  // namespace ferry
