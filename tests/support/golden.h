// SPDX-License-Identifier: Apache-2.0
// Whole texts for users' eyes, held against files in tests/fixtures. With FERRY_RENEW_GOLDEN set to anything
// the files are written anew instead, so that a change of output is reviewed as a difference of files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

namespace ferry::test {

/// Escapes of colours made visible, for files that people read: "\e[31m".
inline std::string visible(const std::string& text) {
  std::string out;
  for (const char c : text) c == '\033' ? out.append("\\e") : out.append(1, c);
  return out;
}

inline void expect_golden(const std::filesystem::path& file, const std::string& text) {
  if (std::getenv("FERRY_RENEW_GOLDEN") != nullptr) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return;
  }
  std::ifstream in(file);
  const std::string golden{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(golden, text) << "FERRY_RENEW_GOLDEN=1 writes " << file << " anew";
}

}  // namespace ferry::test
