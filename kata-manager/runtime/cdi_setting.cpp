// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kata-manager/containerd/containerd_config.h"
#include "kata-manager/kata/kata_checks.h"
#include "kata-manager/runtime/config_files.h"
#include "kata-manager/runtime/runtime_place.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

constexpr const char* kKey = "enable_cdi";
constexpr const char* kFolders = "cdi_spec_dirs";

constexpr ContainerdRelease kOne{.major_number = 1, .minor_number = 7, .patch = 27};
constexpr ContainerdRelease kTwo{.major_number = 2, .minor_number = 1, .patch = 0};

/// The setting of one release.
struct Setting {
  bool on = false;
  bool reads_folder = true;  ///< /var/run/cdi is among the folders of CDI files
  std::string section = kCriOfVersion2;
};

bool is_on(const ContainerdRelease& release, const TomlTable& plugins, const std::string& section) {
  const TomlValue* const value = find(plugins, {section, kKey});
  const bool* const given = value == nullptr ? nullptr : value->boolean();
  return given == nullptr ? release.major_number >= 2 : *given;
}

bool reads_folder(const TomlTable& plugins, const std::string& section) {
  const std::vector<std::string> folders = texts_at(plugins, {section, kFolders});
  return folders.empty() || std::ranges::any_of(folders, [](std::string_view folder) {
           while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
           return folder == "/var/run/cdi" || folder == "/run/cdi";
         });
}

Result<Setting> setting_of(const HostFs& host, const RuntimePlace& place, const ContainerdRelease& release) {
  const auto main = place.kind == RuntimeKind::k0s ? place.configuration.parent_path() / "containerd.toml"
                                                   : place.configuration;
  Setting out{.on = release.major_number >= 2};
  if (!host.exists(main.relative_path())) return out;
  const auto outcome = predict_containerd(release, ConfigFiles(host), main);
  if (outcome.no_start) return fail(Error(*outcome.no_start));
  out.section = outcome.runtime_section;
  out.on = is_on(release, outcome.plugins, out.section);
  out.reads_folder = reads_folder(outcome.plugins, out.section);
  return out;
}

std::string cure(const RuntimePlace& place, const std::string& section, std::string_view line) {
  return fmt::format("write {} to [plugins.\"{}\"] of {}{}, and restart {}", line, section,
                     place.rendered ? "the template of " : "", place.configuration.string(), place.name);
}

}  // namespace

Check cdi_check(const HostFs& host, const std::optional<ContainerdRelease>& running) {
  Check check{.id = "cdi-enabled",
              .subject = kHostSubject,
              .why = "a pod gets the device nodes of its ResourceClaim by CDI files in /var/run/cdi"};
  const auto place = find_runtime(host, {});
  if (!place) return std::move(check).unknown(place.error().message);
  if (place->kind == RuntimeKind::crio) return std::move(check).passed("CRI-O reads CDI files");
  if (running && *running < ContainerdRelease{1, 7, 0})
    return std::move(check).failed(fmt::format("containerd {} reads no CDI files", running->text()),
                                   "upgrade containerd to 2.0 or newer, or to 1.7");
  std::vector<Setting> found;
  std::optional<Error> problem;
  for (const ContainerdRelease& release :
       running ? std::vector<ContainerdRelease>{*running} : std::vector<ContainerdRelease>{kOne, kTwo}) {
    if (auto setting = setting_of(host, *place, release))
      found.push_back(std::move(*setting));
    else
      problem = std::move(setting).error();
  }
  if (found.empty()) return std::move(check).unreadable(*problem);
  const auto lacking = std::ranges::find(found, false, &Setting::reads_folder);
  if (lacking != found.end())
    return std::move(check).failed(
        fmt::format("{} of {} lacks /var/run/cdi", kFolders, place->name),
        cure(*place, lacking->section, R"(cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"])"));
  const auto off = std::ranges::find(found, false, &Setting::on);
  if (off == found.end())
    return std::move(check).passed(fmt::format("CDI is on in the files of {}", place->name));
  const std::string fix = cure(*place, off->section, "enable_cdi = true");
  if (std::ranges::find(found, true, &Setting::on) != found.end())
    return std::move(check).warned(
        "CDI is on for containerd 2, and off for 1.7; it is not known which one runs", fix);
  return std::move(check).failed(fmt::format("CDI is off in the files of {}", place->name), fix);
}

}  // namespace ferry::kata
