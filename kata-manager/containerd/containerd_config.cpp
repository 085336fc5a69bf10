// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/containerd/containerd_config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kata-manager/containerd/containerd_parts.h"

namespace ferry::kata {
namespace {

Error refused(std::string message, std::string hint = {}) {
  return {.code = Errc::invalid_config, .message = std::move(message), .hint = std::move(hint)};
}

TomlTable plugins_of(const ContainerdFile& file) {
  const TomlValue* plugins = find(file.root, {"plugins"});
  return plugins == nullptr ? TomlTable{} : *plugins->table();
}

void add_all(const ContainerdFile& file, const char* key, std::vector<std::string>& into) {
  const TomlValue* list = find(file.root, {key});
  if (list == nullptr) return;
  for (const TomlValue& element : *list->array()) {
    if (std::ranges::find(into, *element.string()) == into.end()) into.push_back(*element.string());
  }
}

std::optional<Error> too_high(const ContainerdRelease& release, std::int64_t version) {
  if (version <= release.highest_version() || !release.checks_version()) return std::nullopt;
  return refused(fmt::format("version {} is above what containerd {} knows, {}", version, release.text(),
                             release.highest_version()));
}

/// "io.containerd.TYPE.vN": an ID with fewer parts is no plugin's.
bool is_plugin_id(const ContainerdRelease& release, const std::string& id) {
  constexpr int kLeastDots = 3;
  if (std::ranges::count(id, '.') < kLeastDots) return false;
  return release < ContainerdRelease{1, 7, 0} || id.starts_with("io.containerd.");
}

// Before 2.0 a later file replaces a whole section, and versions 1 and 2 name their sections differently.
std::optional<Error> merge_by_section(const ContainerdRelease& release, ContainerdOutcome& out) {
  std::int64_t version = 0;
  for (const ContainerdFile& file : out.files) {
    if (file.version() != 0) version = file.version();
    for (auto& [id, section] : plugins_of(file)) out.plugins.insert_or_assign(id, section);
    if (version < 2) continue;
    for (const auto& [id, section] : out.plugins) {
      if (!is_plugin_id(release, id))
        return refused(
            fmt::format("{}: plugins.{} is no plugin's name in version {}", file.path.string(), id, version));
    }
  }
  if (auto problem = too_high(release, version)) return problem;
  if (version >= 2) return std::nullopt;
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

// 2.0 to 2.2 merge the files first, then migrate the sum once, by the last version. A file of version 1
// counts as one without a version: it is migrated to the version so far.
std::optional<Error> merge_then_migrate(const ContainerdRelease& release, ContainerdOutcome& out) {
  std::int64_t version = 0;
  bool unnumbered_behind = false;
  for (const ContainerdFile& file : out.files) {
    if (file.version() >= 2) version = file.version();
    unnumbered_behind |= &file != out.files.data() && file.version() < 2;
    if (auto problem = names_cri_twice(file)) return problem;
    merge_over(out.plugins, plugins_by_full_names(file));
  }
  if (unnumbered_behind && out.files.front().version() > release.highest_version()) {
    return refused(fmt::format("{}: version {} and a drop-in without one: containerd {} crashes",
                               out.files.front().path.string(), out.files.front().version(), release.text()));
  }
  if (auto problem = too_high(release, version)) return problem;
  if (version == 2) out.plugins = migrated_to_version_3(release, std::move(out.plugins));
  return std::nullopt;
}

// From 2.3 on each file is migrated by itself, then merged.
std::optional<Error> migrate_then_merge(const ContainerdRelease& release, ContainerdOutcome& out) {
  const std::int64_t root = out.files.front().version();
  for (const ContainerdFile& file : out.files) {
    if (auto problem = too_high(release, file.version()))
      return std::move(*problem).during(file.path.string());
    if (release.refuses_higher_drop_ins() && root > 0 && file.version() > root) {
      return refused(fmt::format("{}: version {} is above the main file's, {}: containerd {} does not start",
                                 file.path.string(), file.version(), root, release.text()),
                     "a drop-in needs no version");
    }
    if (auto problem = names_cri_twice(file)) return problem;
    merge_over(out.plugins, migrated_to_version_3(release, plugins_by_full_names(file)));
  }
  return std::nullopt;
}

// Before 2.0 a file's map of runtimes replaces the built-in one, so runc may be missing.
void lay_over_built_in(const ContainerdRelease& release, TomlTable& plugins) {
  TomlTable all = built_in_cri(release);
  if (!release.merges_sections() && find(plugins, {kCriOfVersion2, "containerd", "runtimes"}) != nullptr)
    table_at(all, {kCriOfVersion2, "containerd"}).erase("runtimes");
  merge_over(all, plugins);
  plugins = std::move(all);
}

bool is_set(const TomlTable& table, const char* key) {
  const auto value = table.find(key);
  return value != table.end() && value->second.string() != nullptr && !value->second.string()->empty();
}

// True for the built-in lists of CNI folders: upstream's or Debian's.
bool are_built_in(const TomlArray& folders) {
  static const std::vector<std::vector<std::string>> kBuiltIn = {{"/opt/cni/bin"},
                                                                 {"/usr/lib/cni", "/opt/cni/bin"}};
  return std::ranges::any_of(kBuiltIn, [&](const std::vector<std::string>& known) {
    return std::ranges::equal(folders, known, [](const TomlValue& found, const std::string& path) {
      return found.string() != nullptr && *found.string() == path;
    });
  });
}

// A built-in list does not count, even in a file, where `config dump` puts it. No file tells which of the
// two lists this daemon has built in. A daemon with the other list already fails before Ferry's change.
bool gives_network_folder_twice(const ContainerdRelease& release, const TomlTable& plugins) {
  if (!release.has_list_of_network_folders()) return false;
  const TomlValue* network = find(plugins, {kCriRuntime, "cni"});
  if (network == nullptr || network->table() == nullptr) return false;
  const TomlValue* folders = find(*network->table(), {"bin_dirs"});
  return is_set(*network->table(), "bin_dir") && folders != nullptr && folders->array() != nullptr &&
         !folders->array()->empty() && !are_built_in(*folders->array());
}

/// Finds the reason why CRI does not load, with its files and lines.
class CriRefusal {
 public:
  CriRefusal(const ContainerdRelease& release, const ConfigFiles& files, const ContainerdOutcome& out)
      : release_(release), files_(files), out_(out) {}

  /// Absent: CRI loads.
  std::optional<Error> reason() const {
    if (auto why = disabled()) return why;
    if (auto why = lacks_default_runtime()) return why;
    if (auto why = names_mirrors_twice()) return why;
    return release_.merges_sections() ? std::nullopt : has_keys_of_old_runtimes();
  }

  Error both_network_folders() const {
    return refuse({"cni", "bin_dir"}, "cni.bin_dir and cni.bin_dirs are both given", "leave one of them");
  }

 private:
  using Keys = std::vector<std::string>;

  static void add_to(std::string& places, const std::string& place) {
    places += (places.empty() ? "" : ", ") + place;
  }

  /// "FILE:LINE" of each file that has these keys, from its root.
  std::string places_of(const Keys& keys, const std::string& element = {}) const {
    std::string places;
    for (const ContainerdFile& file : out_.files) {
      const auto text = files_.read(file.path);
      const auto line = text ? line_of(*text, keys) : std::nullopt;
      if (!line || (!element.empty() && !lists(file, keys.front(), element))) continue;
      add_to(places, fmt::format("{}:{}", file.path.string(), *line));
    }
    return places;
  }

  static bool lists(const ContainerdFile& file, const std::string& key, const std::string& element) {
    const TomlValue* list = find(file.root, {key});
    return list != nullptr && list->array() != nullptr &&
           std::ranges::find(*list->array(), TomlValue{element}) != list->array()->end();
  }

  /// places_of() for keys in CRI's sections.
  std::string places_in_cri(const Keys& keys) const {
    std::string places;
    for (const char* section : {kCriOfVersion1, kCriOfVersion2, kCriRuntime, kCriImages}) {
      Keys whole = {"plugins", section};
      whole.insert(whole.end(), keys.begin(), keys.end());
      if (const std::string found = places_of(whole); !found.empty()) add_to(places, found);
    }
    return places;
  }

  static Error refuse_at(const std::string& places, const std::string& what, std::string hint) {
    return refused(fmt::format("CRI does not load: {}{}{}", places, places.empty() ? "" : ": ", what),
                   std::move(hint));
  }
  Error refuse(const Keys& keys, const std::string& what, std::string hint) const {
    return refuse_at(places_in_cri(keys), what, std::move(hint));
  }

  std::optional<Error> disabled() const {
    for (const std::string& id : out_.disabled_plugins) {
      if (id != kCriOfVersion1 && id != kCriOfVersion2 && id != kCriRuntime && id != kCriImages) continue;
      return refuse_at(places_of({"disabled_plugins"}, id), "disabled_plugins has " + id,
                       fmt::format("take {} out of that list", id));
    }
    return std::nullopt;
  }

  const TomlTable& section() const { return *out_.plugins.at(out_.runtime_section).table(); }

  std::string default_runtime() const {
    const TomlValue* name = find(section(), {"containerd", "default_runtime_name"});
    return name == nullptr || name->string() == nullptr ? std::string() : *name->string();
  }

  std::optional<Error> lacks_default_runtime() const {
    const std::string name = default_runtime();
    if (out_.runtimes().contains(name)) return std::nullopt;
    std::string places = places_in_cri({"containerd", "default_runtime_name"});
    if (places.empty()) places = places_in_cri({"containerd", "runtimes"});
    std::string hint =
        fmt::format("add a table for the runtime {}, or name another in default_runtime_name", name);
    if (!release_.merges_sections())
      hint += "; before containerd 2 a table of runtimes leaves the built-in runc out";
    return refuse_at(places, fmt::format("its default runtime is not among its runtimes: {}", name),
                     std::move(hint));
  }

  std::optional<Error> names_mirrors_twice() const {
    const std::string id = release_.merges_sections() ? kCriImages : out_.runtime_section;
    const TomlValue* registry = find(out_.plugins, {id, "registry"});
    if (registry == nullptr || registry->table() == nullptr) return std::nullopt;
    const TomlValue* mirrors = find(*registry->table(), {"mirrors"});
    const bool has_mirrors = mirrors != nullptr && mirrors->table() != nullptr && !mirrors->table()->empty();
    if (!has_mirrors || !is_set(*registry->table(), "config_path")) return std::nullopt;
    return refuse({"registry", "mirrors"}, "registry.mirrors and registry.config_path are both given",
                  "leave one of them: a hosts.toml in the folder of config_path names a mirror, too");
  }

  std::optional<Error> has_keys_of_old_runtimes() const {
    constexpr const char* kOldRuntime = "io.containerd.runtime.v1.linux";
    const std::string name = default_runtime();
    const TomlValue* type = find(out_.runtimes(), {name, "runtime_type"});
    const TomlValue* cgroup = find(section(), {"systemd_cgroup"});
    const bool by_systemd = cgroup != nullptr && cgroup->boolean() != nullptr && *cgroup->boolean();
    if (by_systemd && (type == nullptr || *type != TomlValue{std::string(kOldRuntime)})) {
      return refuse(
          {"systemd_cgroup"}, fmt::format("systemd_cgroup is for the runtime {} alone", kOldRuntime),
          fmt::format("take it out, and say SystemdCgroup = true in the options of the runtime {}", name));
    }
    for (const auto& [handler, entry] : out_.runtimes()) {
      for (const char* key : {"runtime_engine", "runtime_root"}) {
        if (entry.table() == nullptr || !is_set(*entry.table(), key)) continue;
        return refuse({"containerd", "runtimes", handler, key},
                      fmt::format("{} of runtime {} is no longer taken", key, handler), "take it out");
      }
    }
    return std::nullopt;
  }

  const ContainerdRelease& release_;
  const ConfigFiles& files_;
  const ContainerdOutcome& out_;
};

}  // namespace

const TomlTable& ContainerdOutcome::runtimes() const {
  static const TomlTable none;
  const TomlValue* found = find(plugins, {runtime_section, "containerd", "runtimes"});
  return found == nullptr || found->table() == nullptr ? none : *found->table();
}

ContainerdOutcome predict_containerd(const ContainerdRelease& release, const ConfigFiles& files,
                                     const std::filesystem::path& main) {
  ContainerdOutcome out;
  out.runtime_section = release.merges_sections() ? kCriRuntime : kCriOfVersion2;
  FilesRead read = read_containerd_files(release, files, main);
  out.files = std::move(read.files);
  out.no_start = std::move(read.problem);
  for (const ContainerdFile& file : out.files) {
    add_all(file, "imports", out.imports);
    add_all(file, "disabled_plugins", out.disabled_plugins);
  }
  if (!out.no_start) {
    out.no_start = !release.merges_sections()     ? merge_by_section(release, out)
                   : release.migrates_each_file() ? migrate_then_merge(release, out)
                                                  : merge_then_migrate(release, out);
  }
  const bool network_folder_twice = gives_network_folder_twice(release, out.plugins);
  if (!out.no_start) {
    lay_over_built_in(release, out.plugins);
    out.no_start = wrong_type(*out.plugins.at(out.runtime_section).table(), out.runtime_section);
  }
  if (out.no_start) {
    out.plugins.clear();
    return out;
  }
  const CriRefusal refusal(release, files, out);
  out.no_cri = network_folder_twice ? refusal.both_network_folders() : refusal.reason();
  return out;
}

}  // namespace ferry::kata
