// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry::test {

struct TarEntry {
  std::string path;
  std::string content = {};
  unsigned mode = 0644;
  std::string symlink = {};
  std::string hardlink = {};
  bool folder = false;
  bool device = false;
  std::uint64_t zeros = 0;  ///< so many instead of `content`
};

enum class Packed { plain, gzip, xz, zstd };

/// A tar with just these entries, whatever they say.
std::string tar_of(const std::vector<TarEntry>& entries, Packed packed = Packed::gzip);

}  // namespace ferry::test
