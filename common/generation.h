// SPDX-License-Identifier: Apache-2.0
// Generations: a writer's own counter in a file or an object, from 1 on.
#pragma once

#include <cstdint>

namespace ferry {

/// The last generation. Not every JSON reader keeps a larger whole number exactly, so readers refuse it.
inline constexpr std::uint64_t kLastGeneration = (std::uint64_t{1} << 53U) - 1;
/// The fault of a larger one, for readers.
inline constexpr const char* kGenerationFault = "expected a number from 0 to 2^53 - 1";

/// The generation after `former`, which another process may have chosen. It begins again at 1.
constexpr std::uint64_t next_generation(std::uint64_t former) {
  return former >= kLastGeneration ? 1 : former + 1;
}

}  // namespace ferry
