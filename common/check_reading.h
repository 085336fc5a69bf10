// SPDX-License-Identifier: Apache-2.0
// Reads for checks: "not there" and "not readable" are different answers.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

/// Bound of an attribute with one value: sysfs gives at most a page, a command line has a few KiB.
inline constexpr std::size_t kAttributeBytes = 64UL * 1024;
/// Bound of a list from the kernel or depmod, also of proc/interrupts with 512 CPUs.
inline constexpr std::size_t kListBytes = 32UL * 1024 * 1024;

/// The text of a file without one trailing newline. Errors: missing (is_gone), unreadable, or
/// Errc::malformed_host for more than `most` bytes and for control characters.
Result<std::string> read_text(const HostFs& host, const std::filesystem::path& path,
                              std::size_t most = kAttributeBytes);
/// A module parameter of type bool ("Y", "N"). is_gone: the module is not loaded, or has no such parameter.
/// ABI: kernel/params.c, param_get_bool.
Result<bool> read_switch(const HostFs& host, const std::filesystem::path& path);

/// The names in a directory; none if the directory is missing.
Result<std::vector<std::string>> names_in(const HostFs& host, const std::filesystem::path& path);

/// Host text for a message: at most 60 bytes, printable ASCII.
std::string shown(std::string_view text);

/// Removes the part of `text` up to the next `separator` or the end, and returns it without the separator.
std::string_view cut(std::string_view& text, char separator);
/// Words that are separated by blanks and tabs.
std::vector<std::string_view> words_of(std::string_view text);

}  // namespace ferry
