// SPDX-License-Identifier: Apache-2.0
// The checks of kata_checks.h that read settings of CRI in the container runtime's files.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kata-manager/configuration/kata_checks.h"
#include "kata-manager/runtimes/config_files.h"
#include "kata-manager/runtimes/containerd_config.h"
#include "kata-manager/runtimes/crio.h"
#include "kata-manager/runtimes/runtime_place.h"
#include "kata-manager/toml/toml.h"

namespace ferry::kata {
namespace {

constexpr const char* kOwnership = "device_ownership_from_security_context";

// The files of a host may be of either: each way of merging them is tried where the files allow both.
constexpr std::array kReleases = {ContainerdRelease{.major_number = 1, .minor_number = 7, .patch = 27},
                                  ContainerdRelease{.major_number = 2, .minor_number = 1, .patch = 0}};

/// The files as a release reads them.
struct Reading {
  ContainerdRelease release;
  ContainerdOutcome outcome;

  bool has_cdi_on() const {
    const TomlValue* const value = find(outcome.plugins, {outcome.runtime_section, "enable_cdi"});
    const bool* const given = value == nullptr ? nullptr : value->boolean();
    return given == nullptr ? release.major_number >= 2 : *given;
  }
  bool reads_cdi_folder() const {
    const auto folders = texts_at(outcome.plugins, {outcome.runtime_section, "cdi_spec_dirs"});
    return folders.empty() || std::ranges::any_of(folders, [](std::string_view folder) {
             while (folder.size() > 1 && folder.ends_with('/')) folder.remove_suffix(1);
             return folder == "/var/run/cdi" || folder == "/run/cdi";
           });
  }
};

/// A release that does not start with the files is left out; an error if each is. Without a main file no
/// setting is given.
Result<std::vector<Reading>> readings_of(const HostFs& host, const RuntimePlace& place,
                                         std::span<const ContainerdRelease> releases) {
  const auto main = place.kind == RuntimeKind::k0s ? place.configuration.parent_path() / "containerd.toml"
                                                   : place.configuration;
  std::vector<Reading> out;
  std::optional<Error> problem;
  for (const ContainerdRelease& release : releases) {
    ContainerdOutcome outcome;
    outcome.runtime_section = kCriOfVersion2;
    if (host.exists(main.relative_path())) outcome = predict_containerd(release, ConfigFiles(host), main);
    if (outcome.no_start)
      problem = std::move(outcome.no_start);
    else
      out.push_back({.release = release, .outcome = std::move(outcome)});
  }
  if (out.empty()) return fail(std::move(*problem));
  return out;
}

/// The setting, and the place where an administrator sets it.
struct Ownership {
  bool on = false;
  bool depends_on_release = false;  ///< of containerd: it is on for one that merges files in one way alone
  std::string place;                ///< "[crio.runtime] of /etc/crio/crio.conf"
};

Result<Ownership> ownership_of_crio(const ConfigFiles& files, const std::filesystem::path& folder) {
  auto paths = files.glob(folder / "*");
  if (!paths) return fail(std::move(paths).error());
  std::ranges::sort(*paths);
  paths->insert(paths->begin(), folder.parent_path() / "crio.conf");
  Ownership out{.place = fmt::format("[crio.runtime] of {}", (folder / "50-devices.conf").string())};
  for (const auto& path : *paths) {
    const auto root = read_crio_file(path, files);
    if (!root) return fail(root.error());
    if (find(*root, {"crio", "runtime", kOwnership}) == nullptr) continue;
    out.on = is_true_at(*root, {"crio", "runtime", kOwnership});
    out.place = fmt::format("[crio.runtime] of {}", path.string());
  }
  return out;
}

/// The file that an administrator edits.
std::filesystem::path edited_file(const HostFs& host, const RuntimePlace& place) {
  if (place.kind == RuntimeKind::k0s) return place.configuration / "devices.toml";
  if (!place.rendered) return place.configuration;
  const auto folder = place.configuration.parent_path();
  const auto newer = folder / "config-v3.toml.tmpl";
  return host.exists(newer.relative_path()) ? newer : folder / "config.toml.tmpl";
}

Result<Ownership> ownership_of_containerd(const HostFs& host, const RuntimePlace& place) {
  const auto readings = readings_of(host, place, kReleases);
  if (!readings) return fail(readings.error());
  const auto on = std::ranges::count_if(*readings, [](const Reading& reading) {
    return is_true_at(reading.outcome.plugins, {reading.outcome.runtime_section, kOwnership});
  });
  const bool is_of_version_3 = std::ranges::any_of(*readings, [](const Reading& reading) {
    return !reading.outcome.files.empty() && reading.outcome.files.front().version() > 2;
  });
  return Ownership{
      .on = on > 0,
      .depends_on_release = on > 0 && std::cmp_less(on, readings->size()),
      .place = fmt::format("[plugins.\"{}\"] of {}", is_of_version_3 ? kCriRuntime : kCriOfVersion2,
                           edited_file(host, place).string())};
}

}  // namespace

Check device_ownership_check(const HostFs& host) {
  Check check{"cdev-ownership", kHostSubject,
              "KubeVirt's launchers are not root, and have /dev/iommu and the nodes below "
              "/dev/vfio/devices only where the container runtime makes these the container's"};
  const auto place = find_runtime(host, {});
  if (!place) return std::move(check).unknown(place.error().message);
  const auto setting = place->kind == RuntimeKind::crio
                           ? ownership_of_crio(ConfigFiles(host), place->configuration)
                           : ownership_of_containerd(host, *place);
  if (!setting) return std::move(check).unreadable(setting.error());
  if (setting->on && !setting->depends_on_release)
    return std::move(check).passed(fmt::format("{} is on in the files of {}", kOwnership, place->name));
  const std::string fix =
      fmt::format("write {} = true to {}, and restart {}", kOwnership, setting->place, place->name);
  if (setting->on)
    return std::move(check).warned(
        fmt::format("{} is on for one of containerd 1 and 2 alone: they merge these files in two ways",
                    kOwnership),
        fix);
  return std::move(check).warned(fmt::format("{} is off in the files of {}", kOwnership, place->name), fix);
}

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
  const auto readings = readings_of(
      host, *place, running ? std::span(&*running, 1) : std::span<const ContainerdRelease>(kReleases));
  if (!readings) return std::move(check).unreadable(readings.error());
  const auto cure = [&](const Reading& reading, std::string_view line) {
    return fmt::format("write {} to [plugins.\"{}\"] of {}{}, and restart {}", line,
                       reading.outcome.runtime_section, place->rendered ? "the template of " : "",
                       place->configuration.string(), place->name);
  };
  const auto lacking = std::ranges::find(*readings, false, &Reading::reads_cdi_folder);
  if (lacking != readings->end())
    return std::move(check).failed(fmt::format("cdi_spec_dirs of {} lacks /var/run/cdi", place->name),
                                   cure(*lacking, R"(cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"])"));
  const auto off = std::ranges::find(*readings, false, &Reading::has_cdi_on);
  if (off == readings->end())
    return std::move(check).passed(fmt::format("CDI is on in the files of {}", place->name));
  const std::string fix = cure(*off, "enable_cdi = true");
  if (std::ranges::find(*readings, true, &Reading::has_cdi_on) != readings->end())
    return std::move(check).warned(
        "CDI is on for containerd 2, and off for 1.7; it is not known which one runs", fix);
  return std::move(check).failed(fmt::format("CDI is off in the files of {}", place->name), fix);
}

}  // namespace ferry::kata
