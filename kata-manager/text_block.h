// SPDX-License-Identifier: Apache-2.0
// Text of ours in somebody else's configuration file: a block between two comments, behind all that is there.
// What is around it stays as it is, byte for byte, and without it the file is what it was before.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry {

/// Puts the lines of `body` into a file, in place of those put there before, or behind its end. Absent
/// `text`: there is no file yet. Line ends are those of the file's last line. Errc::invalid_config: there are
/// two blocks, or half a one.
Result<std::string> with_block(const std::optional<std::string>& text, std::string_view body);

/// The file without the block: absent if there was none before. A file without a block is given back.
/// Errors as above.
Result<std::optional<std::string>> without_block(const std::string& text);

/// The lines between the comments, with "\n" at their ends; absent: the file has no block. Errors as above.
Result<std::optional<std::string>> block_of(std::string_view text);

}  // namespace ferry
