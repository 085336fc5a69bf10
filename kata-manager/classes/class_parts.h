// SPDX-License-Identifier: Apache-2.0
// Internal: the parts of a class file. Errors: as read_classes().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// A map in a class file, with its place.
struct ClassPart {
  const ConfigReader* reader = nullptr;
  const ConfigNode* map = nullptr;
  std::string path = {};   ///< dotted keys, for messages; empty: the document
  bool is_nvidias = true;  ///< of a file without `version`

  std::string key(std::string_view name) const;
  const ConfigNode* find(std::string_view name) const;
  tl::unexpected<Error> refuse(const ConfigNode& at, std::string_view name, const std::string& what,
                               std::string hint = {}) const;

  /// Refuses unknown keys. NVIDIA's format also refuses Ferry's keys, with the reason; lenient reading
  /// ignores both.
  Result<> check_keys(const std::vector<std::string>& nvidias, const std::vector<std::string>& ours) const;
  /// Reads the map at a key; absent or null: `into` stays as it is.
  Result<> at(std::string_view name, ClassPart& into) const;
  /// Reads the string at a key; absent: `into` stays as it is. An error names the expected value.
  Result<> text_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
                   std::string& into) const;
  Result<> texts_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
                    std::vector<std::string>& into) const;
  /// Reads an absolute path of the host, without "..".
  Result<> path_at(std::string_view name, std::optional<std::filesystem::path>& into) const;
  Result<> flag_at(std::string_view name, bool& into) const;
};

/// Reads one item of `runtimeClasses`.
Result<KataClass> read_kata_class(const ClassPart& part);

/// Converts a map to TOML. Refuses null, and scalars that YAML's readers disagree on.
Result<TomlTable> toml_of(const ConfigReader& reader, const ConfigNode& map, const std::string& path);

/// True for an absolute path of the host without ".." and control characters.
bool is_host_path(std::string_view text);

}  // namespace ferry::kata
