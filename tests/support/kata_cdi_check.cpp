// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kata_cdi_check.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include <gtest/gtest.h>

#include "common/process/spawn.h"
#include "common/unique_fd.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

std::optional<std::string> kata_cdi_check() {
  const char* const program = std::getenv("FERRY_KATA_CDI_CHECK");
  if (program == nullptr || *program == '\0') return std::nullopt;
  return program;
}

std::string expect_kata_reads_our_cdi_files(const std::filesystem::path& host_root) {
  const auto program = kata_cdi_check();
  const auto directory = host_root / "var/run/cdi";
  if (!program || !std::filesystem::is_directory(directory)) return {};
  const ScratchDirectory ours;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (text.starts_with("# Made by `ferry plugin`")) ours.file(entry.path().filename(), text);
  }
  const ScratchDirectory scratch;
  const auto answer = scratch.path() / "answer";
  const UniqueFd out(::open(answer.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const int status =
      reap(must(spawn(*program, {*program, ours.path().string()}, {.out = out.get(), .err = 2})));
  if (status != 0) throw std::runtime_error(*program + " ended with status " + std::to_string(status));
  std::ifstream in(answer);
  std::string line;
  std::getline(in, line);
  constexpr std::string_view kGood = "good ";
  EXPECT_TRUE(line.starts_with(kGood)) << line;
  return line.substr(std::min(kGood.size(), line.size()));
}

}  // namespace ferry::test
