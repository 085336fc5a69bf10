// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/kata_files.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/toml.h"

namespace ferry {

Result<std::filesystem::path> choose_configuration(std::span<const ArtifactFile> files,
                                                   const std::filesystem::path& named) {
  std::vector<std::string> top;
  std::vector<std::string> all;
  for (const ArtifactFile& file : files) {
    if (file.path == named) return file.path;
    if (file.path.extension() != ".toml") continue;
    all.push_back(file.path.string());
    if (!file.path.has_parent_path()) top.push_back(file.path.string());
  }
  const std::string hint = all.empty() ? "" : fmt::format("these are there: {}", fmt::join(all, ", "));
  if (!named.empty())
    return fail(Errc::not_found, fmt::format("the artifact has no configuration '{}'", named.string()), hint);
  if (top.empty())
    return fail(Errc::not_found, "the artifact has no Kata configuration (*.toml) at its top",
                hint.empty() ? hint : hint + "; name one");
  if (top.size() > 1)
    return fail(Errc::refused,
                fmt::format("the artifact has several configurations: {}", fmt::join(top, ", ")),
                "name the one that counts");
  return top.front();
}

Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration) {
  const auto text = host.read_file(folder / configuration);
  if (!text) return fail(text.error());
  const auto parsed = parse_toml(*text, configuration.string());
  if (!parsed) return fail(Errc::refused, "Kata's configuration cannot be read: " + parsed.error().message);
  return {};
}

}  // namespace ferry
