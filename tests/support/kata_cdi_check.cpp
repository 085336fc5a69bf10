// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kata_cdi_check.h"

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

std::vector<CdiAnswer> ask_kata_cdi_check(const std::string& program,
                                          const std::vector<std::string>& registries) {
  const ScratchDirectory scratch;
  const auto answers = scratch.path() / "answers";
  const UniqueFd out(::open(answers.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  std::vector<std::string> words = {program};
  words.insert(words.end(), registries.begin(), registries.end());
  const int status = reap(must(spawn(program, words, {.out = out.get(), .err = 2})));
  if (status != 0) throw std::runtime_error(program + " ended with status " + std::to_string(status));
  std::vector<CdiAnswer> found;
  std::ifstream in(answers);
  for (std::string line; std::getline(in, line);) {
    constexpr std::string_view kGood = "good ";
    constexpr std::string_view kBad = "bad ";
    const bool good = line.starts_with(kGood);
    found.push_back({.good = good, .text = line.substr(good ? kGood.size() : kBad.size())});
  }
  return found;
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
  const auto found = ask_kata_cdi_check(*program, {ours.path().string()});
  if (found.size() != 1) throw std::runtime_error(*program + " has not answered with one line");
  EXPECT_TRUE(found[0].good) << found[0].text;
  return found[0].text;
}

}  // namespace ferry::test
