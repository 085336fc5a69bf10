// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
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

constexpr const char* kKey = "device_ownership_from_security_context";

// The files of a host may be of either: each way of merging them is tried where the files allow both.
constexpr ContainerdRelease kOne{.major_number = 1, .minor_number = 7, .patch = 27};
constexpr ContainerdRelease kTwo{.major_number = 2, .minor_number = 1, .patch = 0};

/// The setting, and the place where an administrator sets it.
struct Setting {
  bool on = false;
  bool depends_on_release = false;  ///< of containerd: it is on for one that merges files in one way alone
  std::string place;                ///< "[crio.runtime] of /etc/crio/crio.conf"
};

Result<Setting> of_crio(const ConfigFiles& files, const std::filesystem::path& folder) {
  auto paths = files.glob(folder / "*");
  if (!paths) return fail(std::move(paths).error());
  std::ranges::sort(*paths);
  paths->insert(paths->begin(), folder.parent_path() / "crio.conf");
  Setting out{.place = fmt::format("[crio.runtime] of {}", (folder / "50-devices.conf").string())};
  for (const auto& path : *paths) {
    const auto text = files.read_if_there(path);
    if (!text && text.error().code == std::errc::is_a_directory) continue;
    if (!text) return fail(Error(text.error()));
    const auto root = parse_toml((*text).value_or(""), path.string());
    if (!root) return fail(Error(root.error()));
    if (find(*root, {"crio", "runtime", kKey}) == nullptr) continue;
    out.on = is_true_at(*root, {"crio", "runtime", kKey});
    out.place = fmt::format("[crio.runtime] of {}", path.string());
  }
  return out;
}

/// The file that an administrator edits.
std::filesystem::path edited_file(const HostFs& host, const RuntimePlace& place) {
  if (place.kind == RuntimeKind::k0s) return place.configuration / "devices.toml";
  if (!place.rendered) return place.configuration;
  const auto folder = place.configuration.parent_path();
  for (const char* const name : {"config-v3.toml.tmpl", "config.toml.tmpl"})
    if (host.exists((folder / name).relative_path())) return folder / name;
  return folder / "config.toml.tmpl";
}

Result<Setting> of_containerd(const HostFs& host, const RuntimePlace& place) {
  const ConfigFiles files(host);
  const auto main = place.kind == RuntimeKind::k0s ? place.configuration.parent_path() / "containerd.toml"
                                                   : place.configuration;
  std::string section = kCriOfVersion2;
  Setting out;
  if (host.exists(main.relative_path())) {
    std::optional<Error> problem;
    std::vector<bool> found;
    for (const ContainerdRelease& release : {kOne, kTwo}) {
      auto outcome = predict_containerd(release, files, main);
      if (outcome.no_start) {
        problem = std::move(outcome.no_start);
        continue;
      }
      found.push_back(is_true_at(outcome.plugins, {outcome.runtime_section, kKey}));
      if (!outcome.files.empty() && outcome.files.front().version() > 2) section = kCriRuntime;
    }
    if (found.empty()) return fail(std::move(*problem));
    out.on = std::ranges::find(found, true) != found.end();
    out.depends_on_release = out.on && std::ranges::find(found, false) != found.end();
  }
  out.place = fmt::format("[plugins.\"{}\"] of {}", section, edited_file(host, place).string());
  return out;
}

}  // namespace

Check device_ownership_check(const HostFs& host) {
  Check check{"cdev-ownership", kHostSubject,
              "KubeVirt's launchers are not root, and have /dev/iommu and the nodes below "
              "/dev/vfio/devices only where the container runtime makes these the container's"};
  const auto place = find_runtime(host, {});
  if (!place) return std::move(check).unknown(place.error().message);
  const auto setting = place->kind == RuntimeKind::crio ? of_crio(ConfigFiles(host), place->configuration)
                                                        : of_containerd(host, *place);
  if (!setting) return std::move(check).unreadable(setting.error());
  if (setting->on && !setting->depends_on_release)
    return std::move(check).passed(fmt::format("{} is on in the files of {}", kKey, place->name));
  const std::string fix =
      fmt::format("write {} = true to {}, and restart {}", kKey, setting->place, place->name);
  if (setting->on)
    return std::move(check).warned(
        fmt::format("{} is on for one of containerd 1 and 2 alone: they merge these files in two ways", kKey),
        fix);
  return std::move(check).warned(fmt::format("{} is off in the files of {}", kKey, place->name), fix);
}

}  // namespace ferry::kata
