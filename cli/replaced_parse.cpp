// SPDX-License-Identifier: Apache-2.0
#include "cli/replaced_parse.h"

#include <cstdio>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace ferry {

std::optional<int> parse_replaced(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{0}: {1}\nhint: `{0} --help` lists what there is\n", app.get_name(), error.what());
    return kReplacedFailed;
  }
  return std::nullopt;
}

}  // namespace ferry
