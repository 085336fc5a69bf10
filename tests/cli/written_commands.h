// SPDX-License-Identifier: Apache-2.0
// Command lines that pages for people have in them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/completion/command_model.h"

namespace ferry::test {

using CommandWords = std::vector<std::string>;

/// `root` and all commands below it, each before its own subcommands.
std::vector<const cli::CommandModel*> all_commands(const cli::CommandModel& root);

/// The path with blanks between: "vfio bind"; empty: the program itself.
std::string path_words(const cli::CommandModel& command);

/// The options that may follow a command: its own, and then those of the commands above it. Each command has
/// a --help of its own, and only the program has --version.
std::vector<cli::OptionModel> taken_options(const cli::CommandModel& root, const cli::CommandModel& command);

/// The calls of `program` in a line of a shell, pipes and lists among them, each without the program's name.
/// Quotes are taken away; what expands stays as it is written.
std::vector<CommandWords> commands_in(const std::string& line, const std::string& program = "ferry");

/// Why `root` would not understand these words; empty: it would.
std::string problem_with(const cli::CommandModel& root, const CommandWords& words);

/// The faults of a text by the rules of scripts/lib/check-pages: banned words, sentences of more than 35
/// words.
std::vector<std::string> faults_of(const std::string& text);

/// faults_of() all texts of the help of `root` and of the commands below it.
std::vector<std::string> faults_of_help(const cli::CommandModel& root);

std::vector<std::string> lines_of(const std::filesystem::path& file);

/// The lines of completion_program() for these words, without descriptions; the directive is last.
std::vector<std::string> completed(const cli::CommandModel& root, const std::vector<std::string>& words);

}  // namespace ferry::test
