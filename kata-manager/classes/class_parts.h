// SPDX-License-Identifier: Apache-2.0
// Internal: the parts of a class file. Errors: as read_classes().
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/config_reader.h"
#include "kata-manager/classes/class_file.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {

/// A map in a class file, with its place. A fault is recorded, and the reading goes on: the first one counts.
struct ClassPart {
  const ConfigReader* reader = nullptr;
  std::optional<Error>* fault = nullptr;  ///< the first fault of the file
  const ConfigNode* map = nullptr;
  std::string path = {};   ///< dotted keys, for messages; empty: the document
  bool is_nvidias = true;  ///< of a file without `version`

  std::string key(std::string_view name) const;
  const ConfigNode* find(std::string_view name) const;
  void blame(Error error) const;
  void refuse(const ConfigNode& at, std::string_view name, const std::string& what,
              std::string hint = {}) const;

  /// Refuses unknown keys. NVIDIA's format also refuses Ferry's keys, with the reason; lenient reading
  /// ignores both.
  void check_keys(const std::vector<std::string>& nvidias, const std::vector<std::string>& ours) const;
  /// The map at a key; absent, null or no map: one without `map`.
  ClassPart at(std::string_view name) const;
  /// Reads the string at a key; absent: `into` stays as it is. A fault names the expected value.
  void text_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
               std::string& into) const;
  void texts_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
                std::vector<std::string>& into) const;
  /// Reads an absolute path of the host, without "..".
  void path_at(std::string_view name, std::optional<std::filesystem::path>& into) const;
  void flag_at(std::string_view name, bool& into) const;
};

/// Reads one item of `runtimeClasses`.
KataClass read_kata_class(const ClassPart& part);

/// Converts a map to TOML. Refuses null, and scalars that YAML's readers disagree on.
Result<TomlTable> toml_of(const ConfigReader& reader, const ConfigNode& map, const std::string& path);

/// True for an absolute path of the host without ".." and control characters.
bool is_host_path(std::string_view text);

}  // namespace ferry::kata
