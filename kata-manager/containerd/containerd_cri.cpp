// SPDX-License-Identifier: Apache-2.0
// CRI's sections: their built-in values, their migration to a newer version, and the types of their keys.
#include <array>
#include <utility>

#include <fmt/format.h>

#include "kata-manager/containerd/containerd_parts.h"

namespace ferry::kata {
namespace {

TomlValue text(std::string value) {
  return {std::move(value)};
}

TomlTable built_in_runc(const ContainerdRelease& release) {
  TomlTable options;
  for (const char* key : {"BinaryName", "CriuImagePath", "CriuWorkPath", "Root", "ShimCgroup"})
    options[key] = text("");
  for (const char* key : {"NoNewKeyring", "SystemdCgroup"}) options[key] = {false};
  for (const char* key : {"IoGid", "IoUid"}) options[key] = {std::int64_t{0}};
  if (!release.merges_sections()) {
    options["CriuPath"] = text("");
    options["NoPivotRoot"] = {false};
  }
  TomlTable out = {{"runtime_type", text("io.containerd.runc.v2")}, {"options", {std::move(options)}}};
  if (!release.merges_sections()) out["sandbox_mode"] = text("podsandbox");
  return out;
}

std::string pause_image(const ContainerdRelease& release) {
  const char* tag = "3.10.2";
  if (release < ContainerdRelease{2, 3, 0}) tag = "3.10.1";
  if (release < ContainerdRelease{2, 2, 0}) tag = "3.10";
  if (release < ContainerdRelease{2, 0, 0}) tag = "3.8";
  if (release < ContainerdRelease{1, 7, 0}) tag = "3.6";
  return fmt::format("registry.k8s.io/pause:{}", tag);
}

TomlTable built_in_network(const ContainerdRelease& release) {
  TomlTable out = {{"conf_dir", text("/etc/cni/net.d")}};
  if (release.has_list_of_network_folders()) {
    out["bin_dir"] = text("");
    out["bin_dirs"] = {TomlArray{text("/opt/cni/bin")}};
  } else {
    out["bin_dir"] = text("/opt/cni/bin");
  }
  return out;
}

/// Keys that moved to the images' section under the same name. `sandbox_image` got another name.
constexpr std::array kOfImages = {"registry",
                                  "image_decryption",
                                  "max_concurrent_downloads",
                                  "image_pull_progress_timeout",
                                  "image_pull_with_sync_fs",
                                  "stats_collect_period"};
constexpr std::array kOfImagesInContainerd = {"snapshotter", "disable_snapshot_annotations",
                                              "discard_unpacked_layers"};
/// Keys that stay in the old section, because the streaming server is a plugin of its own.
constexpr std::array kOfStreams = {"disable_tcp_service", "stream_server_address", "stream_server_port",
                                   "stream_idle_timeout", "enable_tls_streaming",  "x509_key_pair_streaming"};

void take(TomlTable& from, const char* key, TomlTable& into) {
  auto node = from.extract(key);
  if (!node.empty()) into.insert(std::move(node));
}

void take_images(TomlTable& old, TomlTable& images) {
  for (const char* key : kOfImages) take(old, key, images);
  if (auto image = old.extract("sandbox_image"); !image.empty())
    table_at(images, {"pinned_images"}).try_emplace("sandbox", std::move(image.mapped()));
  TomlTable* containerd = old.contains("containerd") ? old.at("containerd").table() : nullptr;
  if (containerd == nullptr) return;
  for (const char* key : kOfImagesInContainerd) take(*containerd, key, images);
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

void rename_network_folder(const ContainerdRelease& release, TomlTable& old) {
  TomlTable* network = old.contains("cni") ? old.at("cni").table() : nullptr;
  if (network == nullptr || !release.has_list_of_network_folders()) return;
  auto folder = network->extract("bin_dir");
  if (folder.empty()) return;
  const std::string* path = folder.mapped().string();
  if (path != nullptr && !path->empty())
    network->try_emplace("bin_dirs", TomlValue{TomlArray{folder.mapped()}});
}

enum class Type { text, truth, list, table };

struct Key {
  std::string_view name;
  Type type;
};

constexpr std::array kOfRuntime = {Key{"runtime_type", Type::text},
                                   Key{"runtime_path", Type::text},
                                   Key{"snapshotter", Type::text},
                                   Key{"base_runtime_spec", Type::text},
                                   Key{"privileged_without_host_devices", Type::truth},
                                   Key{"pod_annotations", Type::list},
                                   Key{"container_annotations", Type::list},
                                   Key{"options", Type::table}};

bool is(const TomlValue& value, Type type) {
  switch (type) {
    case Type::text:
      return value.string() != nullptr;
    case Type::truth:
      return value.boolean() != nullptr;
    case Type::list:
      return value.array() != nullptr;
    case Type::table:
      return value.table() != nullptr;
  }
  return false;
}

}  // namespace

TomlTable built_in_cri(const ContainerdRelease& release) {
  TomlTable runtimes = {{"runc", {built_in_runc(release)}}};
  TomlTable cri = {
      {"cni", {built_in_network(release)}},
      {"containerd",
       {TomlTable{{"default_runtime_name", text("runc")}, {"runtimes", {std::move(runtimes)}}}}}};
  if (release.knows_cdi()) {
    cri["enable_cdi"] = {release.merges_sections()};
    cri["cdi_spec_dirs"] = {TomlArray{text("/etc/cdi"), text("/var/run/cdi")}};
  }
  const TomlTable registry = {{"config_path", text("")}};
  if (!release.merges_sections()) {
    cri["sandbox_image"] = text(pause_image(release));
    cri["registry"] = {registry};
    return {{kCriOfVersion2, {std::move(cri)}}};
  }
  TomlTable images = {{"pinned_images", {TomlTable{{"sandbox", text(pause_image(release))}}}},
                      {"registry", {registry}}};
  return {{kCriRuntime, {std::move(cri)}}, {kCriImages, {std::move(images)}}};
}

TomlTable with_full_names(const TomlTable& plugins) {
  TomlTable out = plugins;
  if (const auto old = out.extract(kCriOfVersion1); !old.empty()) {
    TomlTable renamed = {{kCriOfVersion2, old.mapped()}};
    merge_over(renamed, out);
    return renamed;
  }
  return out;
}

TomlTable migrated_to_version_3(const ContainerdRelease& release, TomlTable plugins) {
  auto node = plugins.extract(kCriOfVersion2);
  if (node.empty() || node.mapped().table() == nullptr) return plugins;
  TomlTable old = std::move(*node.mapped().table());
  TomlTable streams;
  for (const char* key : kOfStreams) take(old, key, streams);
  if (!streams.empty()) plugins[kCriOfVersion2] = {std::move(streams)};
  TomlTable images;
  take_images(old, images);
  rename_network_folder(release, old);
  fill_in(table_at(plugins, {kCriImages}), images);
  fill_in(table_at(plugins, {kCriRuntime}), old);
  return plugins;
}

std::optional<Error> wrong_type(const TomlTable& section, const std::string& name) {
  const auto wrong = [&](const std::string& key) {
    return Error{.code = Errc::invalid_config,
                 .message = fmt::format("plugins.{}: {} is of another type than containerd takes", name, key),
                 .hint = {}};
  };
  const TomlValue* runtimes = find(section, {"containerd", "runtimes"});
  if (runtimes == nullptr) return std::nullopt;
  if (runtimes->table() == nullptr) return wrong("containerd.runtimes");
  for (const auto& [handler, entry] : *runtimes->table()) {
    if (entry.table() == nullptr) return wrong("containerd.runtimes." + handler);
    for (const Key& key : kOfRuntime) {
      const auto value = entry.table()->find(key.name);
      if (value != entry.table()->end() && !is(value->second, key.type))
        return wrong(fmt::format("containerd.runtimes.{}.{}", handler, key.name));
    }
  }
  return std::nullopt;
}

}  // namespace ferry::kata
