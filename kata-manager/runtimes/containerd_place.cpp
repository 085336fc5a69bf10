// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/containerd_place.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ferry::kata {
namespace {

TomlValue list_of(const std::vector<std::string>& texts) {
  TomlArray out;
  out.reserve(texts.size());
  for (const std::string& text : texts) out.push_back({text});
  return {std::move(out)};
}

}  // namespace

TomlTable entry_of(const RuntimeHandler& handler, const ContainerdRelease& release) {
  TomlTable out = {{"runtime_type", {handler.runtime_type(release)}},
                   {"runtime_path", {handler.shim.string()}},
                   {"privileged_without_host_devices", {true}},
                   {"pod_annotations", list_of(handler.pod_annotations)},
                   {"container_annotations", list_of(handler.container_annotations)},
                   {"options", {TomlTable{{"ConfigPath", {handler.configuration.string()}}}}}};
  if (handler.snapshotter) out["snapshotter"] = {*handler.snapshotter};
  return out;
}

RuntimeHandler configured_as_in(const TomlTable* entry, RuntimeHandler handler) {
  if (entry == nullptr) return handler;
  const std::string type = text_at(*entry, {"runtime_type"});
  handler.configured_by_path = !type.empty() && type == text_at(*entry, {"runtime_path"});
  return handler;
}

std::string body_of(const EditPlace& candidate, std::span<const RuntimeHandler> handlers, bool new_main,
                    const ContainerdRelease& release) {
  std::string out;
  if (new_main) out += fmt::format("version = {}\n", release.merges_sections() ? 3 : 2);
  const std::vector<std::string> runtimes = {"plugins", candidate.section, "containerd", "runtimes"};
  const auto add = [&](const std::string& name, const TomlTable& entry) {
    std::vector<std::string> path = runtimes;
    path.push_back(name);
    out += toml_text(path, entry);
  };
  if (candidate.with_runc) {
    add("runc", {{"runtime_type", {std::string("io.containerd.runc.v2")}},
                 {"sandbox_mode", {std::string("podsandbox")}}});
  }
  for (const RuntimeHandler& handler : handlers) {
    add(handler.name, entry_of(handler, release));
    // containerd does not take a runtime's snapshotter from its entry alone yet: the images' section needs
    // it, too. The migration of a version 2 section does not add it there.
    if (handler.snapshotter && release.merges_sections())
      out += toml_text({"plugins", kCriImages, "runtime_platforms", handler.name},
                       {{"snapshotter", {*handler.snapshotter}}});
  }
  return out;
}

TomlTable with_handlers(TomlTable plugins, const std::string& section,
                        std::span<const RuntimeHandler> handlers, const ContainerdRelease& release) {
  for (const RuntimeHandler& handler : handlers) {
    table_at(plugins, {section, "containerd", "runtimes"})[handler.name] = {entry_of(handler, release)};
    if (handler.snapshotter && section == kCriRuntime)
      table_at(plugins,
               {kCriImages, "runtime_platforms", handler.name})["snapshotter"] = {*handler.snapshotter};
  }
  return plugins;
}

TomlTable runtimes_in(const TomlTable& block) {
  TomlTable out;
  const TomlTable* plugins = find_table(block, {"plugins"});
  if (plugins == nullptr) return out;
  for (const auto& [id, section] : *plugins) {
    const TomlTable* runtimes = find_table(*plugins, {id, "containerd", "runtimes"});
    if (runtimes != nullptr) merge_over(out, *runtimes);
  }
  return out;
}

Result<> check_snapshotters(std::span<const RuntimeHandler> handlers, const ContainerdRelease& release,
                            std::string_view source) {
  for (const RuntimeHandler& handler : handlers) {
    if (!handler.snapshotter || release.has_runtime_snapshotters()) continue;
    return fail(Errc::unsupported,
                fmt::format("containerd {} has no snapshotter for one runtime alone, and {} asks for {}",
                            release.text(), handler.name, *handler.snapshotter),
                fmt::format("leave it out, or take {} 1.7 or later", source));
  }
  return {};
}

bool has_snapshotter(std::span<const ContainerdFile> files, std::string_view name) {
  return std::ranges::find(kBuiltInSnapshotters, name) != kBuiltInSnapshotters.end() ||
         std::ranges::any_of(files, [&](const ContainerdFile& file) {
           return find(file.root, {"proxy_plugins", name}) != nullptr;
         });
}

}  // namespace ferry::kata
