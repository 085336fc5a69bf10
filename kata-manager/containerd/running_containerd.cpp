// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/containerd/running_containerd.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "common/text/words.h"
#include "kata-manager/containerd/containerd_start.h"

namespace ferry::kata {
namespace {

constexpr const char* kUsualFile = "/etc/containerd/config.toml";
constexpr const char* kUsualSocket = "/run/containerd/containerd.sock";

bool is_number(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

/// ABI: proc(5), /proc/PID/exe: a deleted file has this suffix.
std::filesystem::path without_mark(std::string path) {
  constexpr std::string_view kGone = " (deleted)";
  if (path.ends_with(kGone)) path.resize(path.size() - kGone.size());
  return path;
}

bool serves(const std::vector<std::string>& words, const RuntimePlace& place) {
  const ContainerdStart start = containerd_start({.words = words});
  if (start.socket) return *start.socket == place.socket;
  if (start.configuration) return *start.configuration == place.configuration;
  return place.socket == kUsualSocket && place.configuration == kUsualFile;
}

}  // namespace

std::optional<std::filesystem::path> running_containerd(const HostFs& host, const RuntimePlace& place) {
  const auto names = host.list("proc");
  if (!names) return std::nullopt;
  std::optional<std::filesystem::path> out;
  for (const std::string& name : *names) {
    if (!is_number(name)) continue;
    const auto link = host.link_target("proc/" + name + "/exe");
    if (!link) continue;
    const auto program = without_mark(*link);
    if (program.filename() != "containerd") continue;
    auto words = words_between(host.read_file("proc/" + name + "/cmdline").value_or(""), '\0');
    if (words.empty()) continue;
    words.front() = program;  // replaces argv[0]
    if (!serves(words, place)) continue;
    if (out && *out != program) return std::nullopt;
    out = program;
  }
  return out;
}

}  // namespace ferry::kata
