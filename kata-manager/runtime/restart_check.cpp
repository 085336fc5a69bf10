// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtime/restart_check.h"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <iterator>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/artifacts/artifact_store.h"
#include "kata-manager/containerd/containerd_place.h"
#include "kata-manager/runtime/runtime_record.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

// No plugin has this ID. A containerd that reports it missing has loaded all others.
constexpr const char* kNoSuchPlugin = "io.containerd.ferry.v1.trial";
constexpr mode_t kOwnerOnly = 0600;  // values may hold registry credentials

constexpr std::string_view kSnapshotters = "io.containerd.snapshotter.v1.";
constexpr std::string_view kServers = "io.containerd.server.v1.";
constexpr const char* kNative = "native";

// Plugins that act on, or store, anything outside containerd's root and state.
constexpr std::array kOff = {"io.containerd.internal.v1.opt",     "io.containerd.internal.v1.restart",
                             "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
                             "io.containerd.server.v1.debug",     "io.containerd.server.v1.metrics",
                             "io.containerd.server.v1.grpc-tcp"};

// Plugins whose paths are only read, or lie below root and state.
constexpr std::array kHarmless = {"io.containerd.grpc.v1.cri",
                                  kCriRuntime,
                                  kCriImages,
                                  "io.containerd.nri.v1.nri",
                                  "io.containerd.image-verifier.v1.bindir",
                                  "io.containerd.metadata.v1.bolt",
                                  "io.containerd.runtime.v1.linux",
                                  "io.containerd.runtime.v2.task",
                                  "io.containerd.shim.v1.manager",
                                  "io.containerd.transfer.v1.local"};

bool is_harmless(const std::string& id) {
  return std::ranges::find(kHarmless, id) != kHarmless.end();
}

/// True if a value, or one inside it, names a path or an address.
bool leads_elsewhere(const TomlValue& value) {
  if (const auto* text = value.string()) return text->find('/') != std::string::npos;
  if (const auto* list = value.array()) return std::ranges::any_of(*list, leads_elsewhere);
  if (const auto* table = value.table())
    return std::ranges::any_of(*table, [](const auto& entry) { return leads_elsewhere(entry.second); });
  return false;
}

TomlValue text(std::string value) {
  return {std::move(value)};
}

/// Changes CRI's section only for listeners and for snapshotters that are off. In containerd 1 the section
/// has the images' settings, too.
void keep_cri_apart(TomlTable& section, const std::filesystem::path& folder, bool of_version_1) {
  if (section.contains("stream_server_port")) section["stream_server_port"] = text("0");
  if (section.contains("cni")) table_at(section, {"cni"})["conf_dir"] = text(folder / "cni");
  if (!section.contains("containerd")) return;
  TomlTable& containerd = table_at(section, {"containerd"});
  if (containerd.contains("snapshotter") || of_version_1) containerd["snapshotter"] = text(kNative);
  for (const char* one : {"default_runtime", "untrusted_workload_runtime"})
    if (containerd.contains(one)) table_at(containerd, {one}).erase("snapshotter");
  if (!containerd.contains("runtimes")) return;
  for (auto& [name, runtime] : table_at(containerd, {"runtimes"}))
    for (const char* key : {"snapshotter", "cni_conf_dir"})
      if (TomlTable* entry = runtime.table(); entry != nullptr) entry->erase(key);
}

/// This host in Go's words.
constexpr const char* platform() {
#if defined(__aarch64__)
  return "linux/arm64";
#elif defined(__x86_64__)
  return "linux/amd64";
#else
#error "add the platform as Go names it"
#endif
}

/// Images are unpacked by the only snapshotter that is on; containerd's default is overlayfs.
void keep_transfer_apart(TomlTable& section) {
  section["unpack_config"] = {
      TomlArray{{TomlTable{{"platform", text(platform())}, {"snapshotter", text(kNative)}}}}};
}

void keep_plugins_apart(TomlTable& root, const std::filesystem::path& folder) {
  std::vector<std::string> off(kOff.begin(), kOff.end());
  for (const std::string_view name : kBuiltInSnapshotters)
    if (name != kNative) off.push_back(fmt::format("{}{}", kSnapshotters, name));
  TomlTable& plugins = table_at(root, {"plugins"});
  for (auto& [id, section] : plugins) {
    const bool other_snapshotter =
        id.starts_with(kSnapshotters) && id != std::string(kSnapshotters) + kNative;
    if (other_snapshotter || (!id.starts_with(kSnapshotters) && !id.starts_with(kServers) &&
                              !is_harmless(id) && leads_elsewhere(section)))
      off.push_back(id);
  }
  for (const std::string& id : off) plugins.erase(id);
  plugins.erase(std::string(kSnapshotters) + kNative);
  // The section has files of RDT and blockio, which containerd would apply.
  plugins.erase("io.containerd.service.v1.tasks-service");
  const bool of_version_1 = !plugins.contains(kCriRuntime);
  for (const char* id : {kCriOfVersion2, kCriRuntime})
    if (plugins.contains(id)) keep_cri_apart(table_at(plugins, {id}), folder, of_version_1);
  if (!of_version_1) {
    TomlTable& images = table_at(plugins, {kCriImages});
    images["snapshotter"] = text(kNative);
    images.erase("runtime_platforms");
    keep_transfer_apart(table_at(plugins, {"io.containerd.transfer.v1.local"}));
  }
  if (plugins.contains("io.containerd.nri.v1.nri"))
    plugins["io.containerd.nri.v1.nri"] = {TomlTable{{"disable", {true}}}};
  for (const char* server : {"io.containerd.server.v1.grpc", "io.containerd.server.v1.ttrpc"})
    if (plugins.contains(server))
      plugins[server] = {TomlTable{{"address", text(folder / (std::string(server) + ".sock"))}}};
  TomlArray disabled;
  if (const TomlValue* already = find(root, {"disabled_plugins"});
      already != nullptr && already->array() != nullptr)
    disabled = *already->array();
  for (std::string& id : off) disabled.push_back(text(std::move(id)));
  root["disabled_plugins"] = {std::move(disabled)};
}

/// Changes the output of `config dump` so that containerd touches nothing outside `folder` and exits after
/// its plugins are loaded.
TomlTable kept_apart(TomlTable dump, const std::filesystem::path& folder) {
  for (const char* key : {"cgroup", "debug", "imports", "metrics", "oom_score", "plugin_dir", "proxy_plugins",
                          "stream_processors", "temp"})
    dump.erase(key);
  dump["root"] = text(folder / "root");
  dump["state"] = text(folder / "state");
  dump["grpc"] = {TomlTable{{"address", text(folder / "containerd.sock")}}};
  dump["ttrpc"] = {TomlTable{{"address", text(folder / "ttrpc.sock")}}};
  dump["debug"] = {TomlTable{{"level", text("error")}}};
  TomlArray required = {text(kCriOfVersion2), text(kNoSuchPlugin)};
  if (find(dump, {"plugins", kCriRuntime}) != nullptr)
    required.insert(required.begin(), {text(kCriImages), text(kCriRuntime)});
  dump["required_plugins"] = {std::move(required)};
  keep_plugins_apart(dump, folder);
  return dump;
}

/// 0.toml is the main file, and imports the others.
Result<> write_copies(HostFs& host, std::span<const ContainerdFile> files,
                      const std::filesystem::path& folder) {
  TomlArray imports;
  for (std::size_t i = 1; i < files.size(); ++i)
    imports.push_back(text("/" / folder / fmt::format("{}.toml", i)));
  for (std::size_t i = 0; i < files.size(); ++i) {
    TomlTable root = files[i].root;
    root.erase("imports");
    if (i == 0 && !imports.empty()) root["imports"] = {imports};
    if (auto r = host.write_file(folder / fmt::format("{}.toml", i), toml_text({}, root), kOwnerOnly); !r)
      return r;
  }
  return {};
}

/// The result in containerd's last line; absent: unknown output.
std::optional<std::optional<std::string>> verdict(const std::string& said) {
  std::istringstream lines(said);
  std::optional<std::optional<std::string>> out;
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kOwnName = "containerd: ";
    constexpr std::string_view kRequired = "load required plugin ";
    if (!line.starts_with(kOwnName)) continue;
    line.erase(0, kOwnName.size());
    if (line == fmt::format("required plugin [{}] not included", kNoSuchPlugin))
      return std::optional<std::string>();
    if (line.starts_with("required plugin [")) line = "its CRI plugin is not included, or is disabled";
    if (line.starts_with(kRequired)) line.erase(0, kRequired.size());
    out = std::optional(line);
  }
  return out;
}

class Trial {
 public:
  Trial(HostFs& host, HostWriter& writer, std::filesystem::path program, std::filesystem::path folder)
      : host_(host), writer_(writer), program_(std::move(program)), folder_(std::move(folder)) {}

  Result<std::optional<std::string>> run(std::span<const ContainerdFile> files) {
    if (auto r = remove_all(host_, folder_); !r) return fail(std::move(r).error());
    auto out = run_on_copies(files);
    auto removed = remove_all(host_, folder_);
    if (out && !removed) return fail(std::move(removed).error());
    return out;
  }

 private:
  Result<std::optional<std::string>> run_on_copies(std::span<const ContainerdFile> files) {
    if (auto r = write_copies(host_, files, folder_); !r) return fail(std::move(r).error());
    const auto inside = "/" / folder_;  // as the program sees it
    const HostCommand dump = command({"--config", (inside / "0.toml").string(), "config", "dump"});
    const auto text = writer_.output(dump, kTrialDeadline);
    if (!text) return why_not_read(dump, text.error());
    const auto read = parse_toml(*text, program_.string() + " config dump");
    if (!read) return fail(read.error());
    if (auto r =
            host_.write_file(folder_ / "apart.toml", toml_text({}, kept_apart(*read, inside)), kOwnerOnly);
        !r)
      return fail(std::move(r).error());
    const auto said =
        writer_.transcript(command({"--config", (inside / "apart.toml").string()}), kTrialDeadline);
    if (!said) return fail(said.error());
    if (const auto why = verdict(*said)) return *why;
    return fail(Errc::malformed_host, fmt::format("{}, started apart, says \"{}\"", program_.string(),
                                                  said->substr(0, said->find('\n'))));
  }

  /// A configuration that cannot be read is a reason, too.
  Result<std::optional<std::string>> why_not_read(const HostCommand& dump, const Error& error) {
    if (error.code != make_error_code(Errc::failed)) return fail(Error(error));
    const auto said = writer_.transcript(dump, kTrialDeadline);
    if (!said) return fail(said.error());
    if (const auto why = verdict(*said); why && *why) return *why;
    return fail(Error(error));
  }

  HostCommand command(const std::vector<std::string>& words) const {
    HostCommand out{.words = {program_.string()}, .killed_when_late = true};
    out.words.insert(out.words.end(), words.begin(), words.end());
    return out;
  }

  HostFs& host_;
  HostWriter& writer_;
  std::filesystem::path program_;
  std::filesystem::path folder_;
};

/// Adds the line of each value of that key, at any depth.
void add_lines_of(const std::string& key, std::string_view text, const TomlTable& table, TomlPath path,
                  std::vector<std::uint32_t>& into) {
  for (const auto& [name, value] : table) {
    path.push_back(name);
    const auto line = name == key ? line_of(text, path) : std::nullopt;
    if (line) into.push_back(*line);
    if (value.table() != nullptr) add_lines_of(key, text, *value.table(), path, into);
    path.pop_back();
  }
}

/// The place of a key that containerd names in `backquotes`: "/etc/containerd/config.toml:13"; empty: not
/// found.
std::string place_of_reason(const HostFs& host, std::span<const ContainerdFile> files,
                            std::string_view reason) {
  for (auto begin = reason.find('`'); begin != std::string_view::npos;) {
    const auto end = reason.find('`', begin + 1);
    if (end == std::string_view::npos) break;
    const std::string key(reason.substr(begin + 1, end - begin - 1));
    begin = reason.find('`', end + 1);
    if (key.empty()) continue;
    for (const ContainerdFile& file : files) {
      const auto content = host.read_file(file.path.relative_path());
      if (!content) continue;
      std::vector<std::uint32_t> lines;
      add_lines_of(key, *content, file.root, {}, lines);
      if (!lines.empty()) return fmt::format("{}:{}", file.path.string(), std::ranges::min(lines));
    }
  }
  return {};
}

bool is_containerd(const RestartCheck& check) {
  return check.runtime->place.kind == RuntimeKind::containerd && !check.plan->after.files.empty();
}

/// The time of a file's last change; absent: no file.
std::optional<timespec> changed_at(const HostFs& host, const std::filesystem::path& path) {
  const auto fd = host.open(path.relative_path(), O_PATH);
  struct stat status {};
  if (!fd || ::fstat(fd->get(), &status) != 0) return std::nullopt;
  return status.st_ctim;
}

bool is_later(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/// A file that changed after the daemon's start, which made its socket by the same clock. Files that Ferry
/// wrote for a later start do not count.
Result<std::optional<std::filesystem::path>> edited_file(const RestartCheck& check,
                                                         const std::vector<std::filesystem::path>& files) {
  const auto started = changed_at(*check.host, check.runtime->place.socket);
  if (!started) return std::optional<std::filesystem::path>();
  const auto own = read_runtime_record(*check.host);
  if (!own) return fail(own.error());
  for (const std::filesystem::path& file : files) {
    if (std::ranges::find(*own, file, &FileChange::path) != own->end()) continue;
    const auto changed = changed_at(*check.host, file);
    if (changed && is_later(*changed, *started)) return std::optional(file);
  }
  return std::optional<std::filesystem::path>();
}

Result<> check_age(const RestartCheck& check, const std::vector<std::filesystem::path>& files,
                   const std::string& why_not_asked) {
  if (check.accept_edited_files) return {};
  auto looked = edited_file(check, files);
  if (!looked) return fail(std::move(looked).error());
  const std::optional<std::filesystem::path>& edited = *looked;
  if (!edited) return {};
  return fail(Errc::refused,
              fmt::format("{} has changed since containerd was started, and containerd could not be asked if "
                          "CRI loads with it ({})",
                          edited->string(), why_not_asked),
              "restart containerd yourself and see that its CRI serves, then run this again; or say "
              "--accept-edited-files");
}

std::vector<std::filesystem::path> files_of(const RestartCheck& check) {
  std::vector<std::filesystem::path> out;
  std::ranges::transform(check.plan->files_now, std::back_inserter(out), &ContainerdFile::path);
  return out;
}

/// k3s and rke2 render the file from these templates at each start, so a trial misses an edit of them.
Result<> check_templates(const RestartCheck& check) {
  const RuntimePlace& place = check.runtime->place;
  if (!place.rendered) return {};
  const auto folder = place.configuration.parent_path();
  return check_age(check, {folder / "config.toml.tmpl", folder / "config-v3.toml.tmpl"},
                   place.name + " makes containerd's file from it at its next start");
}

std::string no_program(const RestartCheck& check) {
  const std::string& why = check.runtime->no_program;
  return why.empty() ? "its program is not known" : why;
}

/// The place of containerd's reason: file and line if it names a key, else all files that it reads.
std::string place_of(const RestartCheck& check, std::string_view reason,
                     const std::vector<ContainerdFile>& files) {
  if (auto place = place_of_reason(*check.host, files, reason); !place.empty()) return place;
  std::vector<std::string> names;
  for (const ContainerdFile& file : files)
    if (!file.path.empty()) names.push_back(file.path.string());
  return names.empty() ? check.runtime->place.configuration.string()
                       : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<std::optional<std::string>> why_no_cri(HostFs& host, HostWriter& writer,
                                              const std::filesystem::path& program,
                                              std::span<const ContainerdFile> files,
                                              const std::filesystem::path& folder) {
  return Trial(host, writer, program, folder).run(files);
}

Result<> check_restart(const RestartCheck& check) {
  if (!is_containerd(check)) return {};
  if (auto r = check_templates(check); !r) return r;
  const auto files = files_of(check);
  if (!check.runtime->program) return check_age(check, files, no_program(check));
  const auto& program = *check.runtime->program;
  const auto started = why_no_cri(*check.host, *check.writer, program, check.plan->after.files);
  if (!started) return check_age(check, files, started.error().message);
  const std::optional<std::string>& reason = *started;
  if (!reason) return {};
  // If the trial fails with the release's defaults, too, its result proves nothing.
  const std::vector<ContainerdFile> defaults(1);
  const auto without = why_no_cri(*check.host, *check.writer, program, defaults);
  const auto says = [&](const std::string& text) {
    return check_age(check, files, "started apart, it says: " + text);
  };
  if (!without) return says(without.error().message);
  if (const std::optional<std::string>& always = *without) return says(*always);
  const auto now = why_no_cri(*check.host, *check.writer, program, check.plan->files_now);
  if (now && !*now) {
    return fail(Errc::refused,
                fmt::format("{}: containerd {} would serve no CRI with Ferry's runtimes: {}",
                            place_of(check, *reason, check.plan->after.files), check.runtime->release.text(),
                            *reason),
                "please report this with the configuration files of the host; nothing was changed");
  }
  return fail(
      Errc::refused,
      fmt::format("{}: containerd {} would serve no CRI after a restart: {}",
                  place_of(check, *reason, check.plan->files_now), check.runtime->release.text(), *reason),
      "correct that in the file, then run this again; nothing was changed, and the running containerd "
      "still has its earlier configuration");
}

Result<> foresee_restart(const RestartCheck& check) {
  if (!is_containerd(check)) return {};
  if (auto r = check_templates(check); !r) return r;
  return check.runtime->program ? Result<>() : check_age(check, files_of(check), no_program(check));
}

std::optional<std::string> containerds_own_words(const RestartCheck& check) {
  if (!is_containerd(check) || !check.runtime->program) return std::nullopt;
  const auto why = why_no_cri(*check.host, *check.writer, *check.runtime->program, check.plan->after.files);
  return why ? *why : std::nullopt;
}

}  // namespace ferry::kata
