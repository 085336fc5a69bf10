// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/kata_collect.h"

#include <algorithm>
#include <utility>

#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/kata/kata_configuration.h"
#include "kata-manager/kata/kata_users.h"

namespace ferry::kata {

namespace {

/// True if the class's Kata configuration (Ferry's or an administrator's) names a file of this version. The
/// next sandbox uses that file, even after a newer fetch.
bool is_named(const HostFs& host, const std::string& name, const std::filesystem::path& version) {
  const auto folder = kata_configuration_folder(name).relative_path();
  const auto drop_ins = host.list(folder / "config.d");
  if (!drop_ins && !is_gone(drop_ins.error())) return true;
  std::vector<std::filesystem::path> files = {folder / "configuration.toml"};
  for (const std::string& file : drop_ins.value_or(std::vector<std::string>()))
    files.push_back(folder / "config.d" / file);
  return std::ranges::any_of(files, [&](const auto& file) {
    const auto text = host.read_file(file);
    return text ? text->find(version.string() + "/") != std::string::npos : !is_gone(text.error());
  });
}

}  // namespace

Result<std::vector<std::filesystem::path>> collect_unused(HostFs& host, ContainerRuntime& runtime,
                                                          const std::filesystem::path& artifacts_dir,
                                                          const KataClass& kata,
                                                          std::vector<std::string> others) {
  const auto state = runtime.state();
  if (!state) return std::vector<std::filesystem::path>();
  const auto who =
      who_has(host, runtime, *state,
              {.classes = {kata.name}, .handlers = kata.handlers(), .others = std::move(others)});
  if (!who || *who) return std::vector<std::filesystem::path>();
  return collect_versions(host, artifacts_dir, kata.name,
                          [&](const auto& version) { return is_named(host, kata.name, version); });
}

}  // namespace ferry::kata
