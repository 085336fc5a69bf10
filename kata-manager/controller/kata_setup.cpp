// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/kata_setup.h"

#include <algorithm>
#include <fcntl.h>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/classes/confidential_mode.h"
#include "kata-manager/classes/root_only.h"
#include "kata-manager/configuration/kata_shim.h"

namespace ferry::kata {
namespace {

constexpr const char* kConfiguration = "configuration.toml";

/// A path by the artifact's link, in the version's folder. The link may be missing, or lead elsewhere by now.
std::filesystem::path in_version(const Artifact& artifact, const std::filesystem::path& path) {
  if (is_below(path, artifact.version) || !is_below(path, artifact.folder)) return path;
  return artifact.version / path.lexically_relative(artifact.folder);
}

class SettingUp {
 public:
  SettingUp(const HostFs& host, const ClassFile& file, const KataDevices& devices,
            const VersionOf& version_of, KataSetup& out)
      : host_(host), file_(file), devices_(devices), version_of_(version_of), out_(out) {}

  /// Errc::unsupported: the host's Kata cannot run the class.
  Result<> add(const KataClass& kata, std::optional<Artifact> artifact) {
    auto configuration = artifact ? configuration_of(kata, *artifact) : Result<std::string>(std::string());
    if (!configuration) return fail(std::move(configuration).error().during(kata.name));
    // kata_drop_in() refuses text that is not TOML.
    const auto settings = parse_toml(*configuration, kata.name);
    auto shim = find_kata_shim(host_, kata, version_of_,
                               settings ? runtime_of_configuration(*settings) : std::nullopt);
    if (!shim && shim.error().code == make_error_code(Errc::unsupported))
      return fail(std::move(shim).error());
    if (!shim) return fail(std::move(shim).error().during(kata.place + ": " + kata.name));
    KataClassSetup setup{.name = kata.name,
                         .handlers = kata.handlers(),
                         .shim = shim->path,
                         .configuration = kata_configuration_folder(kata.name) / kConfiguration,
                         .artifact = std::move(artifact)};
    // A push to the registry can move a tag. A digest always names the same files.
    const std::string& url = kata.artifacts.url;
    if (!kata.artifacts.folder() && url.find('@') == std::string::npos)
      out_.notes.push_back(fmt::format("{}: pulled by tag: {}; pin it by digest, {}@{}", kata.name, url, url,
                                       setup.artifact ? setup.artifact->digest : "sha256:…"));
    if (const auto& here = setup.artifact) {
      auto added = add_configuration(kata, *here, std::move(*configuration), *shim, setup);
      if (!added && added.error().code == make_error_code(Errc::unsupported)) return added;
      if (!added) return fail(std::move(added).error().during(kata.name));
    } else {
      out_.notes.push_back(
          fmt::format("{}: its files come from {} first; what Kata's configuration becomes is known then",
                      kata.name, url));
    }
    for (const std::string& name : setup.handlers) {
      out_.handlers.push_back({.name = name,
                               .shim = setup.shim,
                               .configuration = setup.configuration,
                               .snapshotter = kata.snapshotter});
    }
    out_.classes.push_back(std::move(setup));
    return {};
  }

 private:
  /// The artifact's configuration. A folder of `file://` has no bounds, so only root may write it. The agent,
  /// which need not be root, writes a pulled artifact: no link in it leads to another file of the host.
  Result<std::string> configuration_of(const KataClass& kata, const Artifact& artifact) const {
    const auto path = in_version(artifact, artifact.configuration);
    if (const auto folder = kata.artifacts.folder()) {
      if (auto r = check_root_only(host_, *folder); !r) return fail(std::move(r).error());
      return host_.read_file(path.relative_path());
    }
    if (!is_below(path, artifact.version))
      return fail(Errc::refused, fmt::format("{} is no file of the artifact", path.string()));
    const auto version = host_.open(artifact.version.relative_path(), O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!version) return fail(version.error());
    const HostFs root(fmt::format("/proc/self/fd/{}", version->get()));
    auto text = root.read_file(path.lexically_relative(artifact.version));
    if (!text) return fail(std::move(text).error().during("in " + artifact.version.string()));
    return text;
  }

  Result<> add_configuration(const KataClass& kata, const Artifact& artifact, std::string configuration,
                             const KataShim& shim, KataClassSetup& setup) {
    const auto folder = setup.configuration.parent_path().relative_path() / "config.d";
    const auto names = host_.list(folder);
    if (!names && !is_gone(names.error())) return fail(names.error());
    std::map<std::string, std::string> drop_ins;
    for (const std::string& name : names.value_or(std::vector<std::string>{})) {
      auto text = host_.read_file(folder / name);
      if (!text) return fail(std::move(text).error());
      drop_ins.emplace(name, std::move(*text));
    }

    KataBase base{.file = setup.configuration,
                  .text = std::move(configuration),
                  .drop_ins = std::move(drop_ins),
                  // `artifact.folder` is a link, which a later fetch moves to another version.
                  .folder = artifact.version,
                  .files = {},
                  .artifacts_dir = file_.artifacts_dir,
                  .shim = shim};
    for (const ArtifactFile& file : artifact.files) base.files.push_back(file.path);
    auto drop_in = kata_drop_in(kata, base, devices_, file_.pod_resources);
    if (!drop_in) return fail(std::move(drop_in).error());
    for (const std::string& note : drop_in->notes) out_.notes.push_back(kata.name + ": " + note);
    for (const auto& path : drop_in->host_files) {
      if (host_.exists(in_version(artifact, path).relative_path())) continue;
      out_.notes.push_back(
          fmt::format("{}: {} is not there, and no VM starts without it", kata.name, path.string()));
    }
    setup.guest_memory_mib = drop_in->guest_memory_mib;
    setup.programs = drop_in->programs;
    if (auto r = add_file(setup.configuration, std::move(drop_in->copy)); !r) return r;
    return add_file(drop_in->path, std::move(drop_in->text));
  }

  Result<> add_file(const std::filesystem::path& path, std::string content) {
    auto before = content_of(host_, path);
    if (!before) return fail(std::move(before).error());
    if (*before != content)
      out_.files.push_back({.path = path, .before = std::move(*before), .after = std::move(content)});
    return {};
  }

  const HostFs& host_;
  const ClassFile& file_;
  const KataDevices& devices_;
  const VersionOf& version_of_;
  KataSetup& out_;
};

}  // namespace

Result<KataSetup> set_up(const HostFs& host, const ClassFile& file, const KataDevices& devices,
                         const std::function<Result<std::optional<Artifact>>(const KataClass&)>& artifact_of,
                         const VersionOf& version_of) {
  const auto confidential = ConfidentialHost::read(host);
  if (!confidential) return fail(confidential.error());
  KataSetup out;
  SettingUp setting_up(host, file, devices, version_of, out);
  for (const KataClass& kata : file.classes) {
    auto admitted = confidential->admits(kata);
    if (admitted) admitted = devices.mode.admits(kata);
    if (!admitted) {
      out.refused.push_back({.name = kata.name, .why = std::move(admitted).error()});
      continue;
    }
    if (is_confidential(kata.kind)) {
      out.notes.push_back(fmt::format("{}: the mode of the GPUs for confidential computing is {}", kata.name,
                                      devices.mode.text()));
      if (!host.exists(kIommufd))
        out.notes.push_back(
            fmt::format("{}: there is no /{}: Kata gives a confidential VM its GPUs by iommufd alone",
                        kata.name, kIommufd));
    }

    auto artifact = artifact_of(kata);
    if (!artifact) return fail(std::move(artifact).error().during(kata.name));
    auto added = setting_up.add(kata, std::move(*artifact));
    if (added) continue;
    if (added.error().code != make_error_code(Errc::unsupported)) return fail(std::move(added).error());
    out.refused.push_back({.name = kata.name, .why = std::move(added).error()});
  }
  if (auto r = add_removals(host, out); !r) return fail(std::move(r).error());
  return out;
}

Result<std::vector<std::string>> classes_here(const HostFs& host) {
  const auto entries = host.entries(std::filesystem::path(kKataConfigurations).relative_path());
  if (!entries && is_gone(entries.error())) return std::vector<std::string>();
  if (!entries) return fail(entries.error());
  std::vector<std::string> out;
  for (const DirectoryEntry& entry : *entries)
    if (entry.is_directory && is_handler_name(entry.name)) out.push_back(entry.name);
  return out;
}

Result<> add_removals(const HostFs& host, KataSetup& setup) {
  const auto here = classes_here(host);
  if (!here) return fail(here.error());
  for (const std::string& name : *here) {
    if (std::ranges::find(setup.classes, name, &KataClassSetup::name) != setup.classes.end()) continue;
    if (std::ranges::find(setup.refused, name, &RefusedClass::name) != setup.refused.end()) continue;
    bool has_ours = false;  // false: it has only an administrator's files
    for (const auto& path : {kata_configuration_folder(name) / "config.d" / kKataDropIn,
                             kata_configuration_folder(name) / kConfiguration}) {
      auto before = content_of(host, path);
      if (!before) return fail(std::move(before).error());
      if (!*before) continue;
      setup.files.push_back({.path = path, .before = std::move(*before), .after = {}});
      has_ours = true;
    }
    if (has_ours) setup.gone.push_back(name);
  }
  return {};
}

Result<> write_kata_files(HostFs& host, const std::vector<FileChange>& files) {
  for (const FileChange& change : files) {
    if (auto r = make(host, change); !r) return r;
    if (change.after) continue;
    // A folder with an administrator's own drop-in stays.
    const auto above = std::filesystem::path(kKataConfigurations).parent_path().parent_path();
    for (auto folder = change.path.parent_path(); folder != above; folder = folder.parent_path())
      if (!host.remove_empty_folder(folder.relative_path())) break;
  }
  return {};
}

}  // namespace ferry::kata
