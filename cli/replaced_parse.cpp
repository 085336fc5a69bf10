// SPDX-License-Identifier: Apache-2.0
#include "cli/replaced_parse.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/help_text.h"
#include "common/standard_streams.h"

namespace ferry {
namespace {

bool has_option(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(name) != nullptr ||
         std::ranges::any_of(app.get_subcommands({}),
                             [&](const CLI::App* command) { return has_option(*command, name); });
}

// The libraries of the replaced programs accept -name for --name.
std::string with_two_dashes(const CLI::App& app, const std::string& word) {
  constexpr std::size_t kShort = 2;  // -n
  if (word.size() <= kShort || word[0] != '-' || word[1] == '-') return word;
  return has_option(app, "-" + word.substr(0, word.find('='))) ? "-" + word : word;
}

}  // namespace

std::optional<int> parse_replaced(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words;
  for (int at = argc - 1; at > 0; --at) words.push_back(with_two_dashes(app, argv[at]));
  try {
    app.parse(std::move(words));  // CLI11 takes the last word first
  } catch (const CLI::Success& help_or_version) {
    return print_help(app, help_or_version);
  } catch (const CLI::ParseError& error) {
    print_to_stderr("{0}: {1}\nhint: `{0} --help` lists what there is\n", app.get_name(), error.what());
    return kReplacedFailed;
  }
  return std::nullopt;
}

Result<> check_host_root(std::string_view option, const std::string& root) {
  std::error_code failure;
  if (std::filesystem::is_directory(root, failure)) return {};
  return fail(Errc::usage, fmt::format("{} {}: there is no such folder", option, root),
              fmt::format("name the folder where the host's / is mounted: {} DIR", option));
}

}  // namespace ferry
