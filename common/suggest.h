// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ferry {

/// The candidate that a mistyped word most likely meant, or "" if none is near (at most a third of its
/// letters differ, letter case aside).
std::string suggest(std::string_view word, std::span<const std::string> candidates);

/// suggest() as the end of a message: "; did you mean 'vgpu-devices'?", or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace ferry
