// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_collect.h"

#include "kata-manager/artifacts.h"
#include "kata-manager/runtime_change.h"

namespace ferry {

Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const KataClass& kata) {
  const auto handlers = kata.handlers();
  const auto pods = pods_with(runtime, handlers);
  if (!pods || !pods->empty()) return std::vector<std::filesystem::path>();
  return collect_versions(host, artifacts_dir, kata.name, [](const auto&) { return false; });
}

}  // namespace ferry
