// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/container_runtime.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry {

bool RuntimeState::has(const std::string& handler) const {
  if (handlers && std::ranges::find(*handlers, handler) == handlers->end()) return false;
  return !runtimes || std::ranges::find(*runtimes, handler, &KnownRuntime::name) != runtimes->end();
}

bool RuntimeState::knows(const RuntimeHandler& handler) const {
  if (!has(handler.name)) return false;
  if (!runtimes) return true;
  return std::ranges::find(*runtimes, KnownRuntime{.name = handler.name,
                                                   .type = handler.runtime_type(),
                                                   .shim = handler.shim.string(),
                                                   .configuration = handler.configuration.string()}) !=
         runtimes->end();
}

std::string text(const RunningPod& pod) {
  return fmt::format("{}/{} ({})", pod.name_space, pod.name, pod.handler.empty() ? "default" : pod.handler);
}

}  // namespace ferry
