// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/runtimes/container_runtime.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry::kata {

bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  if (folder.empty()) return false;
  const auto inside = path.lexically_relative(folder);
  return !inside.empty() && inside != "." && *inside.begin() != "..";
}

bool is_configuration_of_ferry(const std::filesystem::path& path) {
  return is_below(path.lexically_normal(), kKataConfigurations);
}

bool is_handler_name(std::string_view name) {
  constexpr std::size_t kLongest = 63;
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > kLongest) return false;
  if (!is_plain(name.front()) || !is_plain(name.back())) return false;
  return std::ranges::all_of(name, [&](char c) { return is_plain(c) || c == '-'; });
}

bool RuntimeState::has(const std::string& handler) const {
  if (handlers && std::ranges::find(*handlers, handler) == handlers->end()) return false;
  return !runtimes || std::ranges::find(*runtimes, handler, &KnownRuntime::name) != runtimes->end();
}

bool RuntimeState::starts_shim_of(const KnownRuntime& known) const {
  const auto release = ContainerdRelease::parse(version);
  // An unknown release counts as a new one.
  return known.type == known.shim || !release || release->starts_shims_by_path();
}

bool RuntimeState::knows(const RuntimeHandler& handler) const {
  if (!has(handler.name)) return false;
  if (!runtimes) return true;
  const KnownRuntime& known = *std::ranges::find(*runtimes, handler.name, &KnownRuntime::name);
  const bool has_type = known.type == handler.type_by_name() || known.type == handler.shim.string();
  return has_type && starts_shim_of(known) && known.shim == handler.shim.string() &&
         known.configuration == handler.configuration.string() &&
         known.snapshotter.value_or(handler.snapshotter.value_or("")) == handler.snapshotter.value_or("") &&
         known.pod_annotations.value_or(handler.pod_annotations) == handler.pod_annotations &&
         known.container_annotations.value_or(handler.container_annotations) == handler.container_annotations;
}

std::string text(const RunningPod& pod) {
  return fmt::format("{}/{} ({})", pod.name_space, pod.name, pod.handler.empty() ? "default" : pod.handler);
}

}  // namespace ferry::kata
