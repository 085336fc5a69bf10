// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace ferry::test {

/// A directory of its own for one test, gone afterwards with all that is in it.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ScratchDirectory(ScratchDirectory&&) = delete;
  ScratchDirectory& operator=(ScratchDirectory&&) = delete;
  ~ScratchDirectory();

  const std::filesystem::path& path() const { return path_; }

  /// Tree building; parents are made, an existing entry is replaced. Paths are relative.
  void directory(const std::filesystem::path& relative) const;
  void file(const std::filesystem::path& relative, std::string_view content) const;
  void link(const std::filesystem::path& relative, const std::filesystem::path& target) const;
  void remove(const std::filesystem::path& relative) const;

 private:
  std::filesystem::path path_;
};

}  // namespace ferry::test
