// SPDX-License-Identifier: Apache-2.0
// What manual pages say of a program's commands, and what the program parses: for tests that hold one against
// the other.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/completion/command_model.h"

namespace ferry::test {

std::vector<std::string> words_of(const std::string& line);

/// An option or a positional as a page has it or the program: "-f --file VALUE".
std::string signature(std::vector<std::string> names, const std::string& value);

/// What pages say, by command ("vfio bind"; "" is the program): each option with what stands below it.
using Described = std::map<std::string, std::multimap<std::string, std::string>>;

/// Adds what a page says of the commands of `program` ("ferry", "kubectl ferry").
void read_page(const std::filesystem::path& page, std::string_view program, Described& out);

/// The options alone.
std::map<std::string, std::multiset<std::string>> names_in(const Described& described);

/// The commands that do something, with the options that are theirs alone. --help is said once, of the
/// program.
std::map<std::string, std::multiset<std::string>> parsed(const cli::CommandModel& root);

/// What groff has to say of a page; empty: nothing. Adds a failure where it cannot be asked.
std::vector<std::string> complaints_about(const std::filesystem::path& page);

}  // namespace ferry::test
