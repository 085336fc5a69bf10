// SPDX-License-Identifier: Apache-2.0
// Inside this room: the parts of a class file. Errors are read_classes()'s.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/config_reader.h"
#include "kata-manager/class_file.h"
#include "kata-manager/toml.h"

namespace ferry {

/// A map of a class file that is being read.
struct ClassPart {
  const ConfigReader* reader = nullptr;
  const ConfigNode* map = nullptr;
  std::string path = {};   ///< of keys, for messages; empty for the document
  bool is_nvidias = true;  ///< of a file without a version

  std::string key(std::string_view name) const;
  const ConfigNode* find(std::string_view name) const;
  tl::unexpected<Error> refuse(const ConfigNode& at, std::string_view name, const std::string& what,
                               std::string hint = {}) const;

  /// Refuses keys that are none of `known` and, in NVIDIA's file, those of ours among them, with the reason;
  /// where NVIDIA's tolerance is asked for they are passed over.
  Result<> check_keys(const std::vector<std::string>& nvidias, const std::vector<std::string>& ours) const;
  /// What stands at a key, which has to be a map; absent or nothing: `into` stays as it is.
  Result<> at(std::string_view name, ClassPart& into) const;
  /// The same for a value of one word, with what it has to be.
  Result<> text_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
                   std::string& into) const;
  Result<> texts_at(std::string_view name, const std::string& what, bool (*fits)(std::string_view),
                    std::vector<std::string>& into) const;
  /// An absolute path of the host's, without "..".
  Result<> path_at(std::string_view name, std::optional<std::filesystem::path>& into) const;
  Result<> flag_at(std::string_view name, bool& into) const;
};

/// One of `runtimeClasses`.
Result<KataClass> read_kata_class(const ClassPart& part);

/// A map as TOML has it. Refuses what readers of YAML do not agree on, and null.
Result<TomlTable> toml_of(const ConfigReader& reader, const ConfigNode& map, const std::string& path);

/// Whether a word can be a path of the host's: absolute, without "..", no control characters.
bool is_host_path(std::string_view text);

}  // namespace ferry
