// SPDX-License-Identifier: Apache-2.0
// A configuration file (YAML or JSON) as a tree whose nodes know their lines.
//
// Parsing is stricter than yaml-cpp: duplicate keys, further documents and tags are refused. Aliases and
// merge keys (<<) are applied. Size, depth and the number of values after all aliases are bounded.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry {

/// A text and the file its lines are counted in: the file itself, or a ConfigMap that carries the text.
struct ConfigText {
  std::string file;  ///< path as given; "standard input" for "-"
  std::string text;
  int first_line = 1;  ///< the file's line on which the text begins
  /// The text is a quoted string with \n, so its lines are not lines of the file. place() then gives
  /// `first_line`, and the text's own line in brackets.
  bool one_line = false;

  /// "profiles.yaml:12" for the text's 12th line.
  std::string place(int line) const;

  bool operator==(const ConfigText&) const = default;
};

/// Reads a file, or standard input for "-". Errc::invalid_config: missing, unreadable, a directory, or larger
/// than 2 MiB (a ConfigMap holds at most 1 MiB).
Result<ConfigText> read_config_text(const std::filesystem::path& path);

/// The first 40 bytes of a value for a message, and "…" if there are more.
std::string shortened(std::string_view text);

struct ConfigMember;

struct ConfigNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;                       ///< in the text, from 1; for an alias, the line of the anchor's content
  std::string text;                   ///< a scalar's
  bool quoted = false;                ///< a scalar that is a string whatever it looks like
  std::optional<int> block_line;      ///< first line of a literal block's (|) content, in the text
  std::vector<ConfigNode> items;      ///< a list's
  std::vector<ConfigMember> members;  ///< a map's, in file order; merged members last

  const ConfigMember* find(std::string_view key) const;

  /// True for a quoted scalar, and a plain one that YAML 1.1 and 1.2 take for no null, boolean or number.
  bool is_string() const;
  /// "a list", "010", "the string 'x'": for messages.
  std::string described() const;
};

struct ConfigMember {
  ConfigNode key;  ///< a scalar
  ConfigNode value;
};

/// True: YAML 1.1 and 1.2 both read the unquoted word as a string, unlike `no`, `010` or `1e3`. Characters
/// that need quotes, such as a colon, are not checked.
bool is_plain_string(const std::string& text);

/// Parses the document of a text; an empty one gives a node of kind `null`. Errc::invalid_config with
/// "file:line".
///
/// With `tolerated`, input that NVIDIA's reader accepts is accepted and noted there with its place. The last
/// of two equal keys counts, and documents after the first are ignored.
Result<ConfigNode> parse_config(const ConfigText& source, std::vector<std::string>* tolerated = nullptr);

/// Reads a configuration file, or the text in a ConfigMap: its key config.yaml, or its only key. Errors give
/// lines of the file itself. "-" is standard input. `of_what` is the expected kind of file ("profile");
/// `tolerated` as in parse_config().
Result<ConfigText> read_carried_text(const std::filesystem::path& path, std::string_view of_what,
                                     std::vector<std::string>* tolerated = nullptr);

/// read_carried_text() for a file that has been read already.
Result<ConfigText> carried_text(ConfigText file, std::string_view of_what,
                                std::vector<std::string>* tolerated = nullptr);

}  // namespace ferry
