// SPDX-License-Identifier: Apache-2.0
// A block of Ferry, between two comments, at the end of another program's file. The text around the block
// stays byte for byte, and removing the block restores the file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace ferry::kata {

/// Puts `body` into the block, or into a new block at the end. Absent `text`: the file does not exist. Line
/// ends are those of the file's last line. Errc::invalid_config: two blocks, or half a block.
Result<std::string> with_block(const std::optional<std::string>& text, std::string_view body);

/// The file without the block; absent: the file was created with the block. A file without a block is
/// returned unchanged. Errors: as with_block().
Result<std::optional<std::string>> without_block(const std::string& text);

/// The lines between the comments, each ended by "\n"; absent: no block. Errors: as with_block().
Result<std::optional<std::string>> block_of(std::string_view text);

}  // namespace ferry::kata
