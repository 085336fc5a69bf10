// SPDX-License-Identifier: Apache-2.0
// A configuration file (YAML or JSON) as a plain tree that knows where each thing stands.
//
// Stricter than the library under it: duplicate keys, more than one document and tags are refused; aliases
// and merge keys (<<) are applied; size, depth and the number of values after all aliases are bounded.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace ferry {

/// A text and the file its lines are counted in: the file itself, or a ConfigMap that carries the text.
struct ConfigText {
  std::string file;  ///< as it was given to us; "-" is standard input
  std::string text;
  int first_line = 1;  ///< the file's line on which the text begins
  /// The text has lines that the file has not (a quoted string with \n): then every place is `first_line`,
  /// and the text's own line stands in brackets.
  bool one_line = false;

  /// "profiles.yaml:12" for the text's 12th line.
  std::string place(int line) const;

  bool operator==(const ConfigText&) const = default;
};

/// Reads a file, or standard input for "-". Errc::invalid_config: not there, not readable, a directory, or
/// larger than 2 MiB (a ConfigMap holds at most one).
Result<ConfigText> read_config_text(const std::filesystem::path& path);

/// The first 40 bytes of a value that a message quotes, and "…" for the rest.
std::string shortened(std::string_view text);

struct ConfigMember;

struct ConfigNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;                       ///< of the text, from 1; of an anchor's content where an alias stands
  std::string text;                   ///< of a scalar
  bool quoted = false;                ///< a scalar that is a string whatever it looks like
  std::optional<int> block_line;      ///< of a literal block (|): the text's line on which its content begins
  std::vector<ConfigNode> items;      ///< of a list
  std::vector<ConfigMember> members;  ///< of a map: in order of the file, merged ones last

  const ConfigMember* find(std::string_view key) const;

  /// A quoted scalar, or a plain one that neither YAML 1.1 nor 1.2 takes for a null, a boolean or a number.
  bool is_string() const;
  /// "a list", "010", "the string 'x'": for messages.
  std::string described() const;
};

struct ConfigMember {
  ConfigNode key;  ///< a scalar
  ConfigNode value;
};

/// Whether a word without quotes is a string to YAML 1.1 and 1.2 alike: not `no`, `010` or `1e3`. Says
/// nothing of characters that need quotes, such as a colon.
bool is_plain_string(const std::string& text);

/// The document of a text; a node of kind `null` for an empty one. Errc::invalid_config with "file:line".
///
/// Where `tolerated` is given, what NVIDIA's reader lets pass is let pass, and said there, with its place: of
/// a key that stands twice the last one counts, and documents after the first are not read.
Result<ConfigNode> parse_config(const ConfigText& source, std::vector<std::string>* tolerated = nullptr);

}  // namespace ferry
