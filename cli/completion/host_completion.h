// SPDX-License-Identifier: Apache-2.0
// Completion of `ferry` in a shell. The shell's script runs `ferry` for each word that a user completes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/completion/completion.h"

namespace ferry::cli {

/// The first word behind `ferry` in such a run: `ferry complete WORD...`. It is no verb, and no help names
/// it.
inline constexpr std::string_view kCompleteWord = "complete";

/// The script for "bash", "zsh" or "fish". It throws std::out_of_range for another shell.
std::string_view completion_script(const std::string& shell);

/// FindNames for `ferry`: the PCI addresses, models, IOMMU groups and NUMA nodes of accelerators, mediated
/// devices, advertised resources, claims and policies that the option takes, by --host-root and -f among the
/// words before. It reads sysfs and files, needs no root but for claims, and leaves out what it cannot read.
Names host_names(const OptionModel& option, const WordsBefore& before);

/// Prints completions() of `root` with host_names(), for argv behind kCompleteWord, and returns the exit
/// status. After two seconds it ends without a word.
int print_completions(const CommandModel& root, const std::vector<std::string>& words);

}  // namespace ferry::cli
