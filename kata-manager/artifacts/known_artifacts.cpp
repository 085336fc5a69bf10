// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/known_artifacts.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kata-manager/runtime/config_files.h"

namespace ferry::kata {
namespace {

constexpr const char* kInstalled = "var/lib/ferry-hostd/kata/installed.json";

// The result of a fetch from file://, as far as a plan needs it. Reads no file's content.
Result<std::optional<Artifact>> local_artifact(const HostFs& host, const ClassFile& file,
                                               const KataClass& kata, const std::filesystem::path& folder) {
  const auto names = host.list(folder.relative_path());
  if (!names) return fail(Error(names.error()).during(kata.artifacts.url));
  Artifact out{.name = kata.name,
               .url = kata.artifacts.url,
               .folder = file.artifacts_dir / kata.name,
               .version = folder};
  const auto add_all = [&](const std::filesystem::path& inner) {
    std::vector<std::string> configurations;
    for (const std::string& name :
         host.list((folder / inner).relative_path()).value_or(std::vector<std::string>())) {
      out.files.push_back({.path = inner / name, .size = 0, .sha256 = {}, .link = {}});
      if (name.ends_with(".toml")) configurations.push_back(inner / name);
    }
    return configurations;
  };
  std::vector<std::string> configurations = add_all({});
  const std::vector<std::string> defaults = add_all(kKataDefaults);
  if (configurations.empty()) configurations = defaults;
  add_all(kKataFiles);
  if (!kata.artifacts.configuration && configurations.size() != 1) {
    return fail(
        Errc::refused,
        fmt::format("{}: {} has {} files *.toml, and which of them is Kata's configuration is not said",
                    kata.name, folder.string(), configurations.size()),
        "name it: `artifacts: {url: ..., configuration: FILE}`");
  }
  out.configuration = folder / (kata.artifacts.configuration ? *kata.artifacts.configuration
                                                             : std::filesystem::path(configurations.front()));
  return std::optional(std::move(out));
}

}  // namespace

Result<std::optional<Artifact>> known_artifact(const HostFs& host, const ClassFile& file,
                                               const KataClass& kata) {
  if (const auto folder = kata.artifacts.folder()) return local_artifact(host, file, kata, *folder);
  return current_artifact(host, file.artifacts_dir, kata.name, kata.artifacts.url);
}

Result<> remember_artifacts_dir(HostFs& host, const std::filesystem::path& folder) {
  auto folders = remembered_artifacts_dirs(host).value_or(std::vector<std::filesystem::path>());
  if (!folders.empty() && folders.front() == folder) return {};
  std::erase(folders, folder);
  nlohmann::json document = {{"artifacts_dir", folder.string()}};
  for (const auto& earlier : folders) document["earlier"].push_back(earlier.string());
  return host.write_file(kInstalled, document.dump() + "\n");
}

Result<std::vector<std::filesystem::path>> remembered_artifacts_dirs(const HostFs& host) {
  std::vector<std::filesystem::path> out;
  const auto text = content_of(host, std::filesystem::path("/") / kInstalled);
  if (!text) return fail(Error(text.error()));
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

Result<> forget_artifacts_dirs(HostFs& host) {
  return host.remove_file(kInstalled);
}

}  // namespace ferry::kata
