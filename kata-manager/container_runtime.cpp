// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/container_runtime.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry {

bool RuntimeState::has(const std::string& handler) const {
  if (handlers && std::ranges::find(*handlers, handler) == handlers->end()) return false;
  return !runtimes || std::ranges::find(*runtimes, handler, &KnownRuntime::name) != runtimes->end();
}

namespace {

// One that does not say which release it is is taken for a new one.
bool has_type(const RuntimeState& state, const KnownRuntime& known, const RuntimeHandler& handler) {
  const auto release = ContainerdRelease::parse(state.version);
  return known.type == handler.runtime_type(release ? *release : ContainerdRelease{.major_number = 2});
}

}  // namespace

bool RuntimeState::knows(const RuntimeHandler& handler) const {
  if (!has(handler.name)) return false;
  if (!runtimes) return true;
  const KnownRuntime& known = *std::ranges::find(*runtimes, handler.name, &KnownRuntime::name);
  return has_type(*this, known, handler) && known.shim == handler.shim.string() &&
         known.configuration == handler.configuration.string() &&
         known.snapshotter.value_or(handler.snapshotter.value_or("")) == handler.snapshotter.value_or("") &&
         known.pod_annotations.value_or(handler.pod_annotations) == handler.pod_annotations &&
         known.container_annotations.value_or(handler.container_annotations) == handler.container_annotations;
}

std::string text(const RunningPod& pod) {
  return fmt::format("{}/{} ({})", pod.name_space, pod.name, pod.handler.empty() ? "default" : pod.handler);
}

}  // namespace ferry
