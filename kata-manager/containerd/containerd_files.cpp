// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/containerd/containerd_config.h"

namespace ferry::kata {
namespace {

Error wrong(const std::filesystem::path& file, const std::string& what) {
  return {.code = Errc::invalid_config, .message = file.string() + ": " + what, .hint = {}};
}

// Checks the root keys whose type the daemon needs to read the file at all.
std::optional<Error> wrong_root(const ContainerdFile& file) {
  const auto at = [&](const char* key) { return find(file.root, {key}); };
  if (const TomlValue* version = at("version"); version != nullptr && version->integer() == nullptr)
    return wrong(file.path, "version is no whole number");
  for (const char* list : {"imports", "disabled_plugins"}) {
    const TomlValue* value = at(list);
    if (value == nullptr) continue;
    if (value->array() == nullptr) return wrong(file.path, fmt::format("{} is no list", list));
    for (const TomlValue& element : *value->array()) {
      if (element.string() == nullptr) return wrong(file.path, fmt::format("{} lists what is no text", list));
    }
  }
  const TomlValue* plugins = at("plugins");
  if (plugins == nullptr) return std::nullopt;
  if (plugins->table() == nullptr) return wrong(file.path, "plugins is no table");
  for (const auto& [id, section] : *plugins->table()) {
    if (section.table() == nullptr) return wrong(file.path, fmt::format("plugins.{} is no table", id));
  }
  return std::nullopt;
}

Result<ContainerdFile> read_one(const ConfigFiles& files, const std::filesystem::path& path) {
  auto text = files.read(path);
  if (!text) return fail(std::move(text).error());
  auto root = parse_toml(*text, path.string());
  if (!root) return fail(std::move(root).error());
  ContainerdFile file{.path = path, .root = std::move(*root)};
  if (auto problem = wrong_root(file)) return fail(std::move(*problem));
  return file;
}

Result<std::vector<std::filesystem::path>> imported(const ContainerdRelease& release,
                                                    const ConfigFiles& files, const ContainerdFile& file) {
  std::vector<std::filesystem::path> out;
  const TomlValue* imports = find(file.root, {"imports"});
  if (imports == nullptr) return out;
  for (const TomlValue& pattern : *imports->array()) {
    const std::filesystem::path named = *pattern.string();
    const bool starred = named.string().find('*') != std::string::npos;
    const auto base = starred && !release.globs_beside_the_file() ? "/" : file.path.parent_path();
    const auto whole = (base / named).lexically_normal();
    if (!starred) {
      out.push_back(whole);
      continue;
    }
    auto found = files.glob(whole);
    if (!found) return fail(std::move(found).error());
    std::ranges::move(*found, std::back_inserter(out));
  }
  return out;
}

}  // namespace

std::int64_t ContainerdFile::version() const {
  const TomlValue* value = find(root, {"version"});
  return value == nullptr || value->integer() == nullptr ? 0 : *value->integer();
}

FilesRead read_containerd_files(const ContainerdRelease& release, const ConfigFiles& files,
                                const std::filesystem::path& main) {
  FilesRead out;
  std::set<std::filesystem::path> seen;
  std::deque<std::filesystem::path> waiting = {main.lexically_normal()};
  while (!waiting.empty()) {
    const std::filesystem::path path = std::move(waiting.front());
    waiting.pop_front();
    if (!seen.insert(path).second) continue;
    auto file = read_one(files, path);
    if (!file) {
      out.problem = std::move(file).error();
      return out;
    }
    auto more = imported(release, files, *file);
    if (!more) {
      out.problem = std::move(more).error();
      return out;
    }
    std::ranges::move(*more, std::back_inserter(waiting));
    out.files.push_back(std::move(*file));
  }
  return out;
}

}  // namespace ferry::kata
