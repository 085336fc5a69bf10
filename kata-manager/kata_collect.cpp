// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_collect.h"

#include <algorithm>

#include "kata-manager/artifacts.h"
#include "kata-manager/kata_configuration.h"
#include "kata-manager/runtime_change.h"

namespace ferry {

namespace {

/// Whether Kata's configuration of the class, ours or an administrator's, names a file of that version: the
/// next sandbox is made of it, though another one has been fetched since.
bool is_named(const HostFs& host, const std::string& name, const std::filesystem::path& version) {
  const auto folder = kata_configuration_folder(name).relative_path();
  std::vector<std::filesystem::path> files = {folder / "configuration.toml"};
  for (const std::string& file : host.list(folder / "config.d").value_or(std::vector<std::string>()))
    files.push_back(folder / "config.d" / file);
  return std::ranges::any_of(files, [&](const auto& file) {
    return host.read_file(file).value_or("").find(version.string() + "/") != std::string::npos;
  });
}

}  // namespace

Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const KataClass& kata) {
  const auto handlers = kata.handlers();
  const auto pods = pods_with(runtime, handlers);
  if (!pods || !pods->empty()) return std::vector<std::filesystem::path>();
  return collect_versions(host, artifacts_dir, kata.name,
                          [&](const auto& version) { return is_named(host, kata.name, version); });
}

}  // namespace ferry
