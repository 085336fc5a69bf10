// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <span>
#include <string_view>
#include <system_error>

#include <CLI/CLI.hpp>

#include "cli/commands/command_tree.h"
#include "cli/options/usage_fault.h"
#include "common/log.h"
#include "common/process/standard_streams.h"

namespace ferry::cli {
namespace {

bool any_verb(std::string_view /*verb*/) {
  return true;
}

// A full disk shows only at the last flush. A file's reader must not take a part for the whole.
bool all_was_said() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  print_to_stderr(
      "ferry: write standard output: {}\nhint: the output is not complete; a change of the host, if the "
      "command makes one, is done\n",
      std::generic_category().message(errno));
  return false;
}

int run_verb(const CommandTree& tree) {
  const Globals& globals = tree.globals;
  if (auto log = set_up_log(globals.log_level, globals.log_format); !log) {
    return static_cast<int>(complain(log.error()));
  }
  try {
    Session session = open_session(globals.host_root);
    session.output = globals.output;
    session.colours = globals.colours;
    session.dry_run = globals.dry_run;
    session.explain = globals.explain;
    const ExitStatus status = tree.chosen(session);
    return static_cast<int>(all_was_said() ? status : ExitStatus::failed);
  } catch (const std::exception& error) {
    if (!all_was_said()) return static_cast<int>(ExitStatus::failed);
    // Ferry throws for no reason that a user could fix, so this is out of memory or a defect.
    print_to_stderr("ferry: {}\n", error.what());
    return static_cast<int>(ExitStatus::failed);
  }
}

// Parses with all verbs in the tree.
int run_whole_command_line(std::span<char*> words) {
  CommandTree tree(any_verb);
  CLI::App& app = tree.app;
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::Success& help_or_version) {
    const int status = print_help(app, help_or_version, help_frame());
    return all_was_said() ? status : static_cast<int>(ExitStatus::failed);
  } catch (const CLI::ParseError& error) {
    return static_cast<int>(complain(usage_fault(app, error, words, help_frame())));
  }
  return run_verb(tree);
}

}  // namespace

CommandModel ferry_commands() {
  const CommandTree tree(any_verb);
  return command_model(tree.app);
}

int run_command_line(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  // Building all verbs takes a quarter of a start, so the first try has only those that a word may name.
  CommandTree tree([words](std::string_view verb) { return std::ranges::find(words, verb) != words.end(); });
  try {
    tree.app.parse(argc, argv);
  } catch (const CLI::Error&) {  // help is asked for, or needed
    return run_whole_command_line(words);
  }
  return run_verb(tree);
}

}  // namespace ferry::cli
