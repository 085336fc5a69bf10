// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/configuration/kata_shim.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kata-manager/runtimes/containerd_release.h"

namespace ferry::kata {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr const char* kFolderOfRust = "runtime-rs";

}  // namespace

std::string_view text(ShimRuntime runtime) {
  return runtime == ShimRuntime::go ? "Kata's Go runtime" : "Kata's runtime-rs";
}

std::optional<KataRelease> KataRelease::parse(std::string_view text) {
  const auto numbers = take_release_numbers(text);
  if (!numbers || (!text.empty() && std::string_view("-+\n\r ").find(text.front()) == std::string_view::npos))
    return std::nullopt;
  const auto [major_number, minor_number, patch] = *numbers;
  return KataRelease{.major_number = major_number, .minor_number = minor_number, .patch = patch};
}

std::string KataRelease::text() const {
  return fmt::format("{}.{}.{}", major_number, minor_number, patch);
}

std::string KataShim::text() const {
  if (!runtime && !release) return path.string();
  return fmt::format("{} ({}{})", path.string(), runtime ? ferry::kata::text(*runtime) : "Kata",
                     release ? " " + release->text() : "");
}

// Kata's sources show this: the Go runtime asks from 3.24.0 on; runtime-rs has the setting from 3.25 on,
// except for 3.29 and 3.30.
bool KataShim::asks_kubelet() const {
  if (!release) return true;
  const bool lost_it = *release >= KataRelease{3, 29, 0} && *release < KataRelease{3, 31, 0};
  if (runtime == ShimRuntime::rust) return *release >= KataRelease{3, 25, 0} && !lost_it;
  return *release >= KataRelease{3, 24, 0};
}

bool KataShim::refuses_settings_of_go() const {
  return runtime == ShimRuntime::rust && (!release || *release >= KataRelease{3, 31, 0});
}

VersionOf version_by(HostWriter& writer) {
  return [&writer](const std::filesystem::path& program) {
    return writer.output({.words = {program.string(), "--version"}, .killed_when_late = true}, kPatience);
  };
}

std::optional<ShimRuntime> runtime_of_configuration(const TomlTable& configuration) {
  for (const char* key : {"name", "hypervisor_name", "agent_name"})
    if (find(configuration, {"runtime", key}) != nullptr) return ShimRuntime::rust;
  for (const char* key : {"dial_timeout_ms", "reconnect_timeout_ms", "create_container_timeout"})
    if (find(configuration, {"agent", "kata", key}) != nullptr) return ShimRuntime::rust;
  if (find(configuration, {"agent", "kata", "dial_timeout"}) != nullptr ||
      find(configuration, {"runtime", "create_container_timeout"}) != nullptr)
    return ShimRuntime::go;
  return std::nullopt;
}

KataShim kata_shim_at(const HostFs& host, const std::filesystem::path& path, const VersionOf& version_of) {
  KataShim shim{.path = path};
  const auto answer =
      version_of ? version_of(path) : Result<std::string>(fail(Errc::unsupported, "not asked"));
  if (answer) {
    // The line of a shim has "… version: 3.24.0, commit: …".
    constexpr std::string_view kVersion = " version: ";
    if (const std::size_t at = answer->find(kVersion); at != std::string::npos) {
      const std::string_view rest = std::string_view(*answer).substr(at + kVersion.size());
      shim.release = KataRelease::parse(rest.substr(0, rest.find_first_of(",\n")));
    }
    if (answer->find("(Golang)") != std::string::npos) shim.runtime = ShimRuntime::go;
    if (answer->find("(Rust)") != std::string::npos) shim.runtime = ShimRuntime::rust;
    if (shim.release && shim.runtime) return shim;
    shim.unknown =
        fmt::format("{} --version says \"{}\"", path.string(), answer->substr(0, answer->find('\n')));
  } else {
    shim.unknown = answer.error().message;
  }
  if (!shim.release) {
    // An installation has the file VERSION beside its folder bin. runtime-rs has a folder of its own beside
    // that file.
    std::filesystem::path folder = path.parent_path().parent_path();
    if (folder.filename() == kFolderOfRust) folder = folder.parent_path();
    const auto text = host.read_file((folder / "VERSION").relative_path());
    if (text) shim.release = KataRelease::parse(*text);
  }
  const bool is_in_folder_of_rust =
      std::ranges::find(path, std::filesystem::path(kFolderOfRust)) != path.end();
  if (!shim.runtime && is_in_folder_of_rust) shim.runtime = ShimRuntime::rust;
  return shim;
}

Result<KataShim> find_kata_shim(const HostFs& host, const KataClass& kata, const VersionOf& version_of,
                                std::optional<ShimRuntime> runtime) {
  constexpr std::array kPlaces = {
      "/opt/kata/bin/containerd-shim-kata-v2", "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2",
      "/usr/local/bin/containerd-shim-kata-v2", "/usr/bin/containerd-shim-kata-v2"};
  std::vector<KataShim> here;
  if (kata.shim && !host.exists(kata.shim->relative_path())) {
    return fail(Errc::not_found,
                fmt::format("{}: class {}: there is no {}", kata.place, kata.name, kata.shim->string()),
                "correct the class's `shim`, or leave it out to have it looked for");
  }
  if (kata.shim) here.push_back(kata_shim_at(host, *kata.shim, version_of));
  for (const std::filesystem::path place : kPlaces) {
    if (!kata.shim && host.exists(place.relative_path()))
      here.push_back(kata_shim_at(host, place, version_of));
  }
  if (here.empty()) {
    return fail(
        Errc::not_found,
        fmt::format("class {}: no shim of Kata's is there: not {}", kata.name, fmt::join(kPlaces, ", ")),
        "install Kata, or say in the class where it is: `shim: /DIR/containerd-shim-kata-v2`");
  }
  if (!runtime) return here.front();
  // A shim that gave no answer may be of either runtime, so a shim that is known to fit comes first.
  for (const auto& fitting : {runtime, std::optional<ShimRuntime>()}) {
    const auto found = std::ranges::find(here, fitting, &KataShim::runtime);
    if (found != here.end()) return *found;
  }
  std::vector<std::string> names;
  for (const KataShim& shim : here) names.push_back(shim.text());
  return fail(
      Errc::unsupported,
      fmt::format("{}: class {}: its artifact's configuration is for {}, and the shim here is {}", kata.place,
                  kata.name, text(*runtime), fmt::join(names, ", ")),
      *runtime == ShimRuntime::rust
          ? "install runtime-rs (Kata has its shim in /opt/kata/runtime-rs/bin), name its shim in the "
            "class, or take an artifact for the Go runtime"
          : "install Kata's Go runtime, name its shim in the class, or take an artifact for runtime-rs");
}

}  // namespace ferry::kata
