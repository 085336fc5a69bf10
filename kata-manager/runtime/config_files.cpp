// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/config_files.h"

#include <cerrno>
#include <fnmatch.h>
#include <set>
#include <utility>

namespace ferry::kata {

void ConfigFiles::suppose(const std::filesystem::path& path, std::optional<std::string> content) {
  supposed_.insert_or_assign(path.lexically_normal(), std::move(content));
}

Result<std::string> ConfigFiles::read(const std::filesystem::path& path) const {
  const auto supposed = supposed_.find(path.lexically_normal());
  if (supposed == supposed_.end()) return host_->read_file(path.relative_path());
  if (const auto& content = supposed->second) return *content;
  return fail(error_from_errno(ENOENT, "read " + path.string()));
}

Result<std::optional<std::string>> ConfigFiles::read_if_there(const std::filesystem::path& path) const {
  auto text = read(path);
  if (text) return std::optional(std::move(*text));
  if (text.error().code == std::errc::no_such_file_or_directory) return std::optional<std::string>();
  return fail(std::move(text).error());
}

Result<std::vector<std::string>> ConfigFiles::names_in(const std::filesystem::path& directory) const {
  std::set<std::string> names;
  auto listed = host_->list(directory.relative_path());
  if (listed) {
    names.insert(listed->begin(), listed->end());
  } else if (listed.error().code != std::errc::no_such_file_or_directory &&
             listed.error().code != std::errc::not_a_directory) {
    return fail(std::move(listed).error());
  }
  for (const auto& [path, content] : supposed_) {
    if (path.parent_path() != directory) continue;
    if (content) {
      names.insert(path.filename());
    } else {
      names.erase(path.filename());
    }
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<std::vector<std::filesystem::path>> ConfigFiles::glob(const std::filesystem::path& pattern) const {
  std::vector<std::filesystem::path> found = {"/"};
  bool matched = false;  // an earlier part has a wildcard
  for (const auto& part : pattern.lexically_normal().relative_path()) {
    const bool wild = part.string().find_first_of("*?[") != std::string::npos;
    matched |= wild;
    std::vector<std::filesystem::path> next;
    for (const auto& directory : found) {
      if (!matched) {
        next.push_back(directory / part);
        continue;
      }
      auto names = names_in(directory);
      if (!names) return fail(std::move(names).error());
      for (const std::string& name : *names) {
        if (wild ? ::fnmatch(part.c_str(), name.c_str(), 0) == 0 : name == part)
          next.push_back(directory / name);
      }
    }
    found = std::move(next);
  }
  return found;
}

}  // namespace ferry::kata
