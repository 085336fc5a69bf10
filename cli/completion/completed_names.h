// SPDX-License-Identifier: Apache-2.0
// The names on a host that complete a word of a command line. The completion scripts run `ferry` for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/completion/command_model.h"

namespace ferry::cli {

/// The first word behind `ferry` in such a run: `ferry complete-names KIND WORD...`. It is no verb, and no
/// help names it.
inline constexpr std::string_view kNamesWord = "complete-names";

/// The kind of names that an option or a positional takes; empty: none.
///
///   addresses    PCI addresses of accelerators
///   devices      these, UUIDs of mediated devices, and advertised resources
///   models       IDs of accelerators: "10de:26b9"
///   groups       IOMMU groups of accelerators
///   numa-nodes   NUMA nodes of accelerators
///   claims       UIDs of ResourceClaims with devices of this host; root reads them
///   policies     policies or profiles of the file that the command line names
std::string_view name_kind(const OptionModel& option);

/// A line for each name of `kind`, with a description after a tab. `words`: the command line so far, of which
/// --host-root and -f count. Reads sysfs and files, needs no root, and leaves out what it cannot read.
std::string completed_names(std::string_view kind, const std::vector<std::string>& words);

/// Prints completed_names() for argv behind kNamesWord. Names that need more than two seconds are left out.
int print_completed_names(const std::vector<std::string>& words);

}  // namespace ferry::cli
