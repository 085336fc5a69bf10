// SPDX-License-Identifier: Apache-2.0
// The parts that readers of our configuration files share: refusals with a place, and keys that nobody knows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config_tree.h"
#include "common/result.h"

namespace ferry {

enum class Reading {
  strict,
  lenient,  ///< what the program that is replaced lets pass passes, in its sense, and is said as a warning
};

/// A whole number in the one form that every reader takes for the same: 010 is 8 for some, 0x10 and 1_0 are
/// strings. Absent: it is none.
std::optional<std::int64_t> plain_number(const ConfigNode& node);

/// Reads parts of a file strictly. Every fault is Errc::invalid_config, "file:line: key: what".
class ConfigReader {
 public:
  /// `source` must outlive this. Where `tolerated` is given, it too, and what the reader of a program that is
  /// replaced lets pass is let pass and said there.
  explicit ConfigReader(const ConfigText& source, std::vector<std::string>* tolerated = nullptr)
      : source_(&source), tolerated_(tolerated) {}

  /// The refusal of what stands at a node; `key` is its path, empty for the document.
  tl::unexpected<Error> refuse(const ConfigNode& at, const std::string& key, const std::string& what,
                               std::string hint = {}) const;
  /// The refusal of a part that has its own words for what is wrong.
  tl::unexpected<Error> refuse(const ConfigNode& at, const std::string& key, Error error) const;
  /// Refuses keys that are not `known`, with the one that was probably meant.
  Result<> check_keys(const ConfigNode& map, const std::string& path,
                      const std::vector<std::string>& known) const;
  /// A whole number as every reader takes it (with leniency however it is written); absent: it is none.
  std::optional<std::int64_t> read_number(const ConfigNode& node, const std::string& key) const;
  /// true or false, and no other word for them.
  Result<bool> read_flag(const ConfigNode& node, const std::string& key) const;

  std::string place(const ConfigNode& node) const { return source_->place(node.line); }
  /// Whether such things are tolerated; then it is said.
  bool let_pass(const ConfigNode& at, const std::string& key, const std::string& what) const;
  /// How many things have been let pass so far.
  std::size_t tolerated() const { return tolerated_ != nullptr ? tolerated_->size() : 0; }

 private:
  const ConfigText* source_;
  std::vector<std::string>* tolerated_;
};

}  // namespace ferry
