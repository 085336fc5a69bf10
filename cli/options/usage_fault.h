// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "cli/output/help_text.h"
#include "common/result.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace ferry::cli {

/// The message and the hint for a command line that `app` has refused with `error`. `words` is argv, whose
/// first word is the program's name. Errc::usage.
Error usage_fault(const CLI::App& app, const CLI::ParseError& error, std::span<char* const> words,
                  const HelpFrame& frame);

}  // namespace ferry::cli
