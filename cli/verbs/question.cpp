// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/question.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "common/process/standard_streams.h"
#include "common/text/text.h"

namespace ferry::cli {

bool can_ask() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
}

Result<> ask(const std::string& question) {
  print_to_stderr("{} [y/N] ", question);
  std::array<char, 16> line{};
  const bool read = std::fgets(line.data(), static_cast<int>(line.size()), stdin) != nullptr;
  std::string_view answer = read ? line.data() : "";
  while (!answer.empty() && (answer.back() == '\n' || answer.back() == ' ')) answer.remove_suffix(1);
  for (const std::string_view yes : {"y", "Y", "yes", "Yes", "YES"})
    if (answer == yes) return {};
  if (!read) print_to_stderr("\n");
  return fail(Errc::refused, "nothing was changed: the answer is not yes", "--yes asks no question");
}

Result<> check_answer(const AskedDevices& agreed, const AskedDevices& now, const std::string& noun) {
  const auto added =
      std::ranges::count_if(now, [&](const std::string& device) { return !agreed.contains(device); });
  if (added == 0) return {};
  return fail(
      Errc::refused,
      fmt::format("the host has changed since the question: now it is about {}, and {} of them {} new",
                  counted(now.size(), noun), added, added == 1 ? "is" : "are"),
      "run the command again");
}

}  // namespace ferry::cli
