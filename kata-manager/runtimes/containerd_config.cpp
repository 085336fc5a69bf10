// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/containerd_config.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ferry::kata {
namespace {

Error refused(std::string message, std::string hint = {}) {
  return {.code = Errc::invalid_config, .message = std::move(message), .hint = std::move(hint)};
}

Result<ContainerdFile> read_one(const ContainerdRelease& release, const ConfigFiles& files,
                                const std::filesystem::path& path) {
  auto text = files.read(path);
  if (!text) return fail(std::move(text).error());
  // A trial start does not find it: its copies of the files have none.
  if (release.merges_sections() && text->starts_with("\xEF\xBB\xBF"))
    return fail(
        refused(path.string() + ": it begins with a byte-order mark, which containerd 2 does not take"));
  auto root = parse_toml(*text, path.string());
  if (!root) return fail(std::move(root).error());

  // The daemon needs the right type of these keys to read the file at all.
  const auto wrong = [&](const std::string& what) { return fail(refused(path.string() + ": " + what)); };
  const TomlValue* version = find(*root, {"version"});
  if (version != nullptr && version->integer() == nullptr) return wrong("version is no whole number");
  for (const char* list : {"imports", "disabled_plugins"}) {
    const TomlValue* value = find(*root, {list});
    if (value == nullptr) continue;
    if (value->array() == nullptr) return wrong(fmt::format("{} is no list", list));
    for (const TomlValue& element : *value->array())
      if (element.string() == nullptr) return wrong(fmt::format("{} lists what is no text", list));
  }
  const TomlValue* plugins = find(*root, {"plugins"});
  if (plugins != nullptr && plugins->table() == nullptr) return wrong("plugins is no table");
  return ContainerdFile{.path = path, .root = std::move(*root)};
}

/// containerd 2 ignores an entry that is no section; containerd 1 says so in a trial start.
TomlTable plugins_of(const ContainerdFile& file) {
  const TomlTable* plugins = find_table(file.root, {"plugins"});
  TomlTable out = plugins == nullptr ? TomlTable{} : *plugins;
  std::erase_if(out, [](const auto& entry) { return entry.second.table() == nullptr; });
  return out;
}

std::optional<Error> too_high(const ContainerdRelease& release, const ContainerdFile& file) {
  if (file.version() <= release.highest_version() || !release.checks_version()) return std::nullopt;
  return refused(fmt::format("{}: version {} is above what containerd {} knows, {}", file.path.string(),
                             file.version(), release.text(), release.highest_version()));
}

/// Renames the dot-less section of version 1 to its full name.
TomlTable with_full_names(const TomlTable& plugins) {
  TomlTable out = plugins;
  if (const auto old = out.extract(kCriOfVersion1); !old.empty()) {
    TomlTable renamed = {{kCriOfVersion2, old.mapped()}};
    merge_over(renamed, out);
    return renamed;
  }
  return out;
}

// Before 2.0 a later file replaces a whole section, and versions 1 and 2 name their sections differently.
std::optional<Error> merge_by_section(const ContainerdRelease& release, ContainerdOutcome& out) {
  const ContainerdFile* numbered = &out.files.front();  // the last one with a version
  for (const ContainerdFile& file : out.files) {
    if (file.version() != 0) numbered = &file;
    for (auto& [id, section] : plugins_of(file)) out.plugins.insert_or_assign(id, section);
  }
  if (auto problem = too_high(release, *numbered)) return problem;
  if (numbered->version() >= 2) return std::nullopt;
  out.plugins.erase(kCriOfVersion2);
  out.plugins = with_full_names(out.plugins);
  return std::nullopt;
}

// 2.x renames the dot-less sections of a file of version 1, or without one. If the file has both names,
// they become one map key, and which of them counts differs from start to start.
std::optional<Error> names_cri_twice(const ContainerdFile& file) {
  const TomlTable plugins = plugins_of(file);
  if (file.version() >= 2 || !plugins.contains(kCriOfVersion1) || !plugins.contains(kCriOfVersion2))
    return std::nullopt;
  return refused(
      fmt::format("{}: to containerd 2 plugins.{} and plugins.\"{}\" of a file without version 2 are "
                  "one section, and which of them counts is chance",
                  file.path.string(), kCriOfVersion1, kCriOfVersion2),
      "leave one of them");
}

TomlTable plugins_by_full_names(const ContainerdFile& file) {
  return file.version() < 2 ? with_full_names(plugins_of(file)) : plugins_of(file);
}

// Existing keys win, also one level down. Deeper values are not merged.
void fill_in(TomlTable& into, const TomlTable& from) {
  for (const auto& [key, value] : from) {
    const auto [there, is_new] = into.try_emplace(key, value);
    if (is_new || there->second.table() == nullptr || value.table() == nullptr) continue;
    for (const auto& [inner, inner_value] : *value.table())
      there->second.table()->try_emplace(inner, inner_value);
  }
}

/// Moves CRI's section of version 2 into those of version 3. Of the images' keys only `registry` moves, which
/// cri_refusal() reads. containerd moves more, but no edit of Ferry meets those keys.
TomlTable migrated_to_version_3(TomlTable plugins) {
  auto node = plugins.extract(kCriOfVersion2);
  if (node.empty()) return plugins;
  TomlTable& old = *node.mapped().table();
  if (const auto registry = old.extract("registry"); !registry.empty())
    fill_in(table_at(plugins, {kCriImages}), {{"registry", registry.mapped()}});
  fill_in(table_at(plugins, {kCriRuntime}), old);
  return plugins;
}

// 2.0 to 2.2 merge the files first, then migrate the sum once, by the last version. A file of version 1
// counts as one without a version: it is migrated to the version so far.
std::optional<Error> merge_then_migrate(const ContainerdRelease& release, ContainerdOutcome& out) {
  const ContainerdFile* numbered = &out.files.front();  // the last one with a version above 1
  bool unnumbered_behind = false;
  for (const ContainerdFile& file : out.files) {
    if (file.version() >= 2) numbered = &file;
    unnumbered_behind |= &file != out.files.data() && file.version() < 2;
    if (auto problem = names_cri_twice(file)) return problem;
    merge_over(out.plugins, plugins_by_full_names(file));
  }
  if (unnumbered_behind && out.files.front().version() > release.highest_version()) {
    return refused(fmt::format("{}: version {} and a drop-in without one: containerd {} crashes",
                               out.files.front().path.string(), out.files.front().version(), release.text()));
  }
  if (auto problem = too_high(release, *numbered)) return problem;
  if (numbered->version() == 2) out.plugins = migrated_to_version_3(std::move(out.plugins));
  return std::nullopt;
}

// containerd 2.3 and later: each file is migrated by itself, then merged.
std::optional<Error> migrate_then_merge(const ContainerdRelease& release, ContainerdOutcome& out) {
  const std::int64_t root = out.files.front().version();
  for (const ContainerdFile& file : out.files) {
    if (auto problem = too_high(release, file)) return problem;
    if (release.refuses_higher_drop_ins() && root > 0 && file.version() > root) {
      return refused(fmt::format("{}: version {} is above the main file's, {}: containerd {} does not start",
                                 file.path.string(), file.version(), root, release.text()),
                     "a drop-in needs no version");
    }
    if (auto problem = names_cri_twice(file)) return problem;
    merge_over(out.plugins, migrated_to_version_3(plugins_by_full_names(file)));
  }
  return std::nullopt;
}

/// places_of() for keys in CRI's sections.
std::vector<std::string> places_in_cri(const ConfigFiles& files, const ContainerdOutcome& out,
                                       const TomlPath& keys) {
  std::vector<std::string> places;
  for (const char* section : {kCriOfVersion1, kCriOfVersion2, kCriRuntime, kCriImages}) {
    TomlPath whole = {"plugins", section};
    whole.insert(whole.end(), keys.begin(), keys.end());
    std::ranges::move(places_of(files, out, whole), std::back_inserter(places));
  }
  return places;
}

Error does_not_load(const std::vector<std::string>& places, const std::string& what, std::string hint) {
  return refused(
      fmt::format("CRI does not load: {}{}{}", fmt::join(places, ", "), places.empty() ? "" : ": ", what),
      std::move(hint));
}

/// The reason why CRI does not load, with its files and lines; absent: it loads.
std::optional<Error> cri_refusal(const ContainerdRelease& release, const ConfigFiles& files,
                                 const ContainerdOutcome& out) {
  for (const ContainerdFile& file : out.files) {
    for (const std::string& id : texts_at(file.root, {"disabled_plugins"})) {
      if (id != kCriOfVersion1 && id != kCriOfVersion2 && id != kCriRuntime && id != kCriImages) continue;
      return does_not_load(places_of(files, out, {"disabled_plugins"}, id), "disabled_plugins has " + id,
                           fmt::format("take {} out of that list", id));
    }
  }

  const TomlTable& section = *out.plugins.at(out.runtime_section).table();
  const std::string runtime = text_at(section, {"containerd", "default_runtime_name"});
  if (!out.runtimes().contains(runtime)) {
    auto places = places_in_cri(files, out, {"containerd", "default_runtime_name"});
    if (places.empty()) places = places_in_cri(files, out, {"containerd", "runtimes"});
    std::string hint =
        fmt::format("add a table for the runtime {}, or name another in default_runtime_name", runtime);
    if (!release.merges_sections())
      hint += "; before containerd 2 a table of runtimes leaves the built-in runc out";
    return does_not_load(places, fmt::format("its default runtime is not among its runtimes: {}", runtime),
                         std::move(hint));
  }

  const std::string images = release.merges_sections() ? kCriImages : out.runtime_section;
  const TomlTable* mirrors = find_table(out.plugins, {images, "registry", "mirrors"});
  if (mirrors != nullptr && !mirrors->empty() &&
      !text_at(out.plugins, {images, "registry", "config_path"}).empty()) {
    return does_not_load(places_in_cri(files, out, {"registry", "mirrors"}),
                         "registry.mirrors and registry.config_path are both given",
                         "leave one of them: a hosts.toml in the folder of config_path names a mirror, too");
  }

  constexpr const char* kOldRuntime = "io.containerd.runtime.v1.linux";
  if (!release.merges_sections() && is_true_at(section, {"systemd_cgroup"}) &&
      text_at(out.runtimes(), {runtime, "runtime_type"}) != kOldRuntime) {
    return does_not_load(
        places_in_cri(files, out, {"systemd_cgroup"}),
        fmt::format("systemd_cgroup is for the runtime {} alone", kOldRuntime),
        fmt::format("take it out, and say SystemdCgroup = true in the options of the runtime {}", runtime));
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> places_of(const ConfigFiles& files, const ContainerdOutcome& out,
                                   const TomlPath& keys, const std::string& element) {
  std::vector<std::string> places;
  for (const ContainerdFile& file : out.files) {
    const auto text = files.read(file.path);
    const auto line = text ? line_of(*text, keys) : std::nullopt;
    if (!line) continue;
    if (!element.empty()) {
      const auto elements = texts_at(file.root, {keys.front()});
      if (std::ranges::find(elements, element) == elements.end()) continue;
    }
    places.push_back(fmt::format("{}:{}", file.path.string(), *line));
  }
  return places;
}

std::int64_t ContainerdFile::version() const {
  return integer_at(root, {"version"}).value_or(0);
}

std::int64_t last_version(std::span<const ContainerdFile> files) {
  std::int64_t version = 0;
  for (const ContainerdFile& file : files)
    if (file.version() != 0) version = file.version();
  return version;
}

ContainerdOutcome read_containerd_files(const ContainerdRelease& release, const ConfigFiles& files,
                                        const std::filesystem::path& main) {
  ContainerdOutcome out;
  out.runtime_section = release.merges_sections() ? kCriRuntime : kCriOfVersion2;
  std::set<std::filesystem::path> seen;
  std::map<std::filesystem::path, std::string> imported_at;
  std::deque<std::filesystem::path> waiting = {main.lexically_normal()};
  while (!waiting.empty()) {
    const std::filesystem::path path = std::move(waiting.front());
    waiting.pop_front();
    if (!seen.insert(path).second) continue;
    auto file = read_one(release, files, path);
    if (!file) {
      out.no_start = std::move(file).error();
      const auto place = imported_at.find(path);
      if (place != imported_at.end() && out.no_start->code != make_error_code(Errc::invalid_config))
        out.no_start = std::move(*out.no_start).during(place->second + ": imports");
      return out;
    }
    for (const std::filesystem::path named : texts_at(file->root, {"imports"})) {
      const bool starred = named.string().find('*') != std::string::npos;
      const auto base = starred && !release.globs_beside_the_file() ? "/" : path.parent_path();
      const auto whole = (base / named).lexically_normal();
      if (!starred) {
        const auto line = line_of(files.read(path).value_or(""), {"imports"});
        imported_at.try_emplace(whole, fmt::format("{}:{}", path.string(), line.value_or(1)));
        waiting.push_back(whole);
        continue;
      }
      auto found = files.glob(whole);
      if (!found) {
        out.no_start = std::move(found).error();
        return out;
      }
      std::ranges::move(*found, std::back_inserter(waiting));
    }
    out.files.push_back(std::move(*file));
  }
  return out;
}

std::optional<std::filesystem::path> socket_in_files(const ConfigFiles& files,
                                                     const std::filesystem::path& main) {
  std::optional<std::filesystem::path> out;
  const ContainerdRelease any{.major_number = 1, .minor_number = 7};  // they import files alike
  for (const ContainerdFile& file : read_containerd_files(any, files, main).files) {
    for (const std::string& address :
         {text_at(file.root, {"grpc", "address"}),
          text_at(file.root, {"plugins", "io.containerd.server.v1.grpc", "address"})})
      if (!address.empty()) out = (std::filesystem::path("/") / address).lexically_normal();
  }
  return out;
}

const TomlTable& ContainerdOutcome::runtimes() const {
  static const TomlTable none;
  const TomlTable* found = find_table(plugins, {runtime_section, "containerd", "runtimes"});
  return found == nullptr ? none : *found;
}

ContainerdOutcome predict_containerd(const ContainerdRelease& release, const ConfigFiles& files,
                                     const std::filesystem::path& main) {
  ContainerdOutcome out = read_containerd_files(release, files, main);
  if (!out.no_start) {
    out.no_start = !release.merges_sections()     ? merge_by_section(release, out)
                   : release.migrates_each_file() ? migrate_then_merge(release, out)
                                                  : merge_then_migrate(release, out);
  }
  if (out.no_start) {
    out.plugins.clear();
    return out;
  }

  // The files lie over the built-in default runtime. Before 2.0 a file's map of runtimes replaces the
  // built-in one, so runc may be missing.
  TomlTable runc = {{"runtime_type", {std::string("io.containerd.runc.v2")}}};
  if (!release.merges_sections()) runc["sandbox_mode"] = {std::string("podsandbox")};
  TomlTable all;
  TomlTable& containerd = table_at(all, {out.runtime_section, "containerd"});
  containerd["default_runtime_name"] = {std::string("runc")};
  if (release.merges_sections() || find(out.plugins, {kCriOfVersion2, "containerd", "runtimes"}) == nullptr)
    table_at(containerd, {"runtimes"})["runc"] = {std::move(runc)};
  merge_over(all, out.plugins);
  out.plugins = std::move(all);

  out.no_cri = cri_refusal(release, files, out);
  return out;
}

}  // namespace ferry::kata
