// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/usage/use_probes.h"
#include "tests/fuzz/fuzz.h"

// What the kernel lists, with what people call their mount points.
void ferry::fuzz::one_input(std::string_view text) {
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1;
  const auto mounts = host::parse_mountinfo(text);
  require(mounts.size() <= lines, "a mount is a line");
  for (const host::Mount& mount : mounts) {
    require(!mount.source.empty(), "each has a source");
    require(mount.number.find_first_of(" \t\n") == std::string::npos, "a number is one field");
  }
  const auto paths = host::parse_swaps(text);
  require(paths.size() <= lines, "a path is a line");
  require(std::ranges::all_of(paths, [](const auto& path) { return path.starts_with('/'); }),
          "a path is absolute");
}
