// SPDX-License-Identifier: Apache-2.0
// Shared by the readers of configuration files: errors with a place, and refusal of unknown keys.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/config/config_tree.h"
#include "common/result.h"

namespace ferry {

enum class Reading {
  strict,
  lenient,  ///< accepts input that the replaced program accepts, in its sense, with a warning
};

/// A whole number in the only form that all readers read alike: 010 is 8 for some, 0x10 and 1_0 are strings.
/// Absent: not such a number.
std::optional<std::int64_t> plain_number(const ConfigNode& node);

/// Reads parts of a file strictly. Every fault is Errc::invalid_config, "file:line: key: reason".
class ConfigReader {
 public:
  /// `source` and `tolerated` must outlive this. With `tolerated`, input that the replaced program accepts is
  /// accepted and noted there.
  explicit ConfigReader(const ConfigText& source, std::vector<std::string>* tolerated = nullptr)
      : source_(&source), tolerated_(tolerated) {}

  /// An error about the node `at`; `key` is its path, empty for the document.
  tl::unexpected<Error> refuse(const ConfigNode& at, const std::string& key, const std::string& what,
                               std::string hint = {}) const;
  tl::unexpected<Error> refuse(const ConfigNode& at, const std::string& key, Error error) const;
  /// Refuses keys that are not `known`, and names the key that was probably meant.
  Result<> check_keys(const ConfigNode& map, const std::string& path,
                      const std::vector<std::string>& known) const;
  /// plain_number(), or with leniency any form that Go's YAML reader takes. Absent: not a whole number.
  std::optional<std::int64_t> read_number(const ConfigNode& node, const std::string& key) const;
  Result<bool> read_flag(const ConfigNode& node, const std::string& key) const;

  std::string place(const ConfigNode& node) const { return source_->place(node.line); }
  /// Returns whether leniency is on, and then notes the input as accepted.
  bool let_pass(const ConfigNode& at, const std::string& key, const std::string& what) const;
  /// Number of notes so far.
  std::size_t tolerated() const { return tolerated_ != nullptr ? tolerated_->size() : 0; }

 private:
  const ConfigText* source_;
  std::vector<std::string>* tolerated_;
};

/// Reads a configuration file, or the text in a ConfigMap, as read_carried_text() does, and its content by
/// `read`. A plain file is parsed twice, and a ConfigMap and its content once each; each warning comes once.
template <typename File>
Result<File> read_carried(const std::filesystem::path& path, std::string_view of_what, Reading how,
                          Result<File> (*read)(const ConfigText&, Reading)) {
  std::vector<std::string> outside;
  auto text = read_carried_text(path, of_what, how == Reading::lenient ? &outside : nullptr);
  if (!text) return fail(std::move(text).error());
  auto file = read(*text, how);
  if (!file) return file;
  for (std::string& warning : outside) {
    if (std::ranges::find(file->warnings, warning) == file->warnings.end())
      file->warnings.push_back(std::move(warning));
  }
  return file;
}

}  // namespace ferry
