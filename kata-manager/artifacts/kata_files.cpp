// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/kata_files.h"

#include <cstdint>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/toml/toml.h"

namespace ferry::kata {

Result<std::filesystem::path> choose_configuration(std::span<const ArtifactFile> files,
                                                   const std::filesystem::path& named) {
  std::vector<std::string> top;
  std::vector<std::string> defaults;
  std::vector<std::string> all;
  for (const ArtifactFile& file : files) {
    if (file.path == named) return file.path;
    if (file.path.extension() != ".toml") continue;
    all.push_back(file.path.string());
    if (!file.path.has_parent_path()) top.push_back(file.path.string());
    if (file.path.parent_path() == kKataDefaults) defaults.push_back(file.path.string());
  }
  if (top.empty()) top = std::move(defaults);
  const std::string hint = all.empty() ? "" : fmt::format("these are there: {}", fmt::join(all, ", "));
  if (!named.empty())
    return fail(Errc::not_found, fmt::format("the artifact has no configuration '{}'", named.string()), hint);
  if (top.empty())
    return fail(
        Errc::not_found,
        fmt::format("the artifact has no Kata configuration (*.toml) at its top, nor in {}", kKataDefaults),
        hint.empty() ? hint : hint + "; name one");
  if (top.size() > 1)
    return fail(Errc::refused,
                fmt::format("the artifact has several configurations: {}", fmt::join(top, ", ")),
                "name the one that counts");
  return top.front();
}

Result<> check_configuration(const HostFs& host, const std::filesystem::path& folder,
                             const std::filesystem::path& configuration) {
  constexpr std::int64_t kMost = 1LL << 20;  // Kata's longest shipped file has 40 KiB
  const auto file = host.open(folder / configuration, O_PATH);
  if (!file) return fail(file.error());
  struct stat status {};
  if (::fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > kMost) {
    return fail(Errc::refused,
                fmt::format("Kata's configuration '{}' is no file of a MiB at most", configuration.string()));
  }
  const auto text = host.read_file(folder / configuration);
  if (!text) return fail(text.error());
  const auto parsed = parse_toml(*text, configuration.string());
  if (!parsed) return fail(Errc::refused, "Kata's configuration cannot be read: " + parsed.error().message);
  return {};
}

}  // namespace ferry::kata
