// SPDX-License-Identifier: Apache-2.0
// Reading for checks: "it is not there" and "it cannot be read" are different answers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// No attribute of one value is longer (sysfs gives at most a page; a command line has a few KiB).
inline constexpr std::size_t kAttributeBytes = 64UL * 1024;
/// No list that a kernel or depmod writes is longer, proc/interrupts of a host with 512 CPUs included.
inline constexpr std::size_t kListBytes = 32UL * 1024 * 1024;

/// The text of a file, less one trailing newline. Errors: it is not there (is_gone), cannot be read, has more
/// than `most` bytes, or holds control characters (Errc::malformed_host).
Result<std::string> read_text(const HostFs& host, const std::filesystem::path& path,
                              std::size_t most = kAttributeBytes);
/// A module's parameter of type bool ("Y", "N"). Without the module, or with one that has no such parameter,
/// it is not there (is_gone).
/// ABI: kernel/params.c, param_get_bool.
Result<bool> read_switch(const HostFs& host, const std::filesystem::path& path);

/// The names in a directory; none when it is not there.
Result<std::vector<std::string>> names_in(const HostFs& host, const std::filesystem::path& path);

/// Text off the host, fit to be shown in a sentence: at most 60 bytes, printable ASCII.
std::string shown(std::string_view text);

/// Cuts `text` at the next `separator`, or at its end, and gives what was before it.
std::string_view cut(std::string_view& text, char separator);
/// The words between blanks and tabs.
std::vector<std::string_view> words_of(std::string_view text);

}  // namespace ferry
