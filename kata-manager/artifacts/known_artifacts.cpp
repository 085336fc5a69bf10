// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/known_artifacts.h"

#include <algorithm>
#include <fcntl.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kata-manager/artifacts/artifact_tree.h"
#include "kata-manager/classes/root_only.h"
#include "kata-manager/runtimes/config_files.h"

namespace ferry::kata {
namespace {

constexpr const char* kInstalled = "var/lib/ferry-hostd/kata/installed.json";

Result<> record(HostFs& host, const std::vector<std::filesystem::path>& folders) {
  nlohmann::json document = {{"artifacts_dir", folders.front().string()}};
  for (std::size_t i = 1; i < folders.size(); ++i) document["earlier"].push_back(folders[i].string());
  return host.write_file(kInstalled, document.dump() + "\n");
}

}  // namespace

Result<std::optional<Artifact>> known_artifact(const HostFs& host, const ClassFile& file,
                                               const KataClass& kata) {
  const auto folder = kata.artifacts.folder();
  if (!folder) return current_artifact(host, file.artifacts_dir, kata.name, kata.artifacts.url);
  auto opened = host.open(folder->relative_path(), O_RDONLY | O_DIRECTORY);
  if (!opened) return fail(std::move(opened).error().during(kata.artifacts.url));
  // A listing has no limit of depth, and another user's folder could take all of hostd's memory.
  if (auto r = check_root_only(host, *folder); !r)
    return fail(std::move(r).error().during(kata.artifacts.url));
  auto listing = list_tree(std::move(*opened), false, ArtifactLimits().files);
  if (!listing) return fail(std::move(listing).error().during(kata.artifacts.url));

  const auto chosen = choose_configuration(listing->files, kata.artifacts.configuration);
  if (!chosen)
    return fail(Errc::refused,
                fmt::format("{}: {}: {}", kata.name, kata.artifacts.url, chosen.error().message),
                chosen.error().hint);
  return std::optional(Artifact{.name = kata.name,
                                .url = kata.artifacts.url,
                                .folder = file.artifacts_dir / kata.name,
                                .version = *folder,
                                .configuration = *folder / *chosen,
                                .files = std::move(listing->files)});
}

Result<> remember_artifacts_dir(HostFs& host, const std::filesystem::path& folder) {
  auto folders = remembered_artifacts_dirs(host).value_or(std::vector<std::filesystem::path>());
  if (!folders.empty() && folders.front() == folder) return {};
  std::erase(folders, folder);
  folders.insert(folders.begin(), folder);
  return record(host, folders);
}

Result<std::vector<std::filesystem::path>> remembered_artifacts_dirs(const HostFs& host) {
  std::vector<std::filesystem::path> out;
  const auto text = content_of(host, std::filesystem::path("/") / kInstalled);
  if (!text) return fail(text.error());
  const auto& there = *text;
  if (!there) return out;
  try {
    const auto document = nlohmann::json::parse(*there);
    out.emplace_back(document.at("artifacts_dir").get<std::string>());
    for (const auto& earlier : document.value("earlier", std::vector<std::string>()))
      out.emplace_back(earlier);
    return out;
  } catch (const nlohmann::json::exception&) {
    return fail(Errc::malformed_host, fmt::format("/{} cannot be read", kInstalled),
                "name the class file with -f");
  }
}

std::vector<std::filesystem::path> artifacts_dirs_with(const HostFs& host,
                                                       const std::filesystem::path& folder) {
  auto out = remembered_artifacts_dirs(host).value_or(std::vector<std::filesystem::path>());
  out.push_back(folder);
  return out;
}

Result<> forget_artifacts_dirs(HostFs& host, const std::vector<std::filesystem::path>& unreached) {
  auto folders = remembered_artifacts_dirs(host).value_or(std::vector<std::filesystem::path>());
  std::erase_if(folders,
                [&](const auto& folder) { return std::ranges::find(unreached, folder) == unreached.end(); });
  return folders.empty() ? host.remove_file(kInstalled) : record(host, folders);
}

}  // namespace ferry::kata
