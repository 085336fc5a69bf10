// SPDX-License-Identifier: Apache-2.0
#include "hostfs/processes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <vector>

#include "hostfs/descriptor_reads.h"

namespace ferry {
namespace {

constexpr std::size_t kLongestCommandLine = 128UL << 10U;
constexpr int kInit = 1;

std::string beginning_of_file(const HostFs& host, const std::filesystem::path& file) {
  const auto fd = host.open(file, O_RDONLY);
  std::string text(kLongestCommandLine, '\0');
  std::size_t size = 0;
  while (fd && size < text.size()) {
    const ssize_t n = ::read(fd->get(), &text[size], text.size() - size);
    if (n <= 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  return text;
}

/// True below "kubepods". In a container of another pod, which has a cgroup namespace of its own on version
/// 2, the path begins at the first group that the two pods share: "0::/../../pod0f2c…",
/// "0::/../../../burstable/pod0f2c…". No other group that a user of the host may make lies there.
bool is_of_kubelet(std::string_view cgroup) {
  if (cgroup.find("kubepods") != std::string_view::npos) return true;
  constexpr std::string_view kUp = "/..";
  const auto begin = cgroup.find(":/../");
  if (begin == std::string_view::npos) return false;
  std::string_view path = cgroup.substr(begin + 1);
  while (path.starts_with(kUp)) path.remove_prefix(kUp.size());
  return path.starts_with("/pod") || path.starts_with("/burstable/pod") ||
         path.starts_with("/besteffort/pod");
}

}  // namespace

// If the first thread of a process has ended, only its other threads show the command line.
std::string command_line(const HostFs& host, int pid) {
  const auto process = std::filesystem::path("proc") / std::to_string(pid);
  std::string text = beginning_of_file(host, process / "cmdline");
  if (!text.empty()) return text;
  for (const std::string& thread : host.list(process / "task").value_or(std::vector<std::string>{})) {
    text = beginning_of_file(host, process / "task" / thread / "cmdline");
    if (!text.empty()) break;
  }
  return text;
}

bool runs_below_another_root(const HostFs& host, int pid, std::initializer_list<const char*> roots) {
  const auto own = host.open_below_root_of(pid, ".", O_PATH | O_DIRECTORY);
  if (!own) return false;
  bool is_known = false;
  for (const char* const root : roots) {
    const auto other = host.open_below_root_of(kInit, root, O_PATH | O_DIRECTORY);
    if (other && is_same_file(own->get(), other->get())) return false;
    is_known = is_known || other;
  }
  return is_known;
}

std::string pod_uid(std::string_view cgroup) {
  // …/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f2c…_….slice/… (systemd driver) or
  // …/kubepods/burstable/pod0f2c…-…/… (cgroupfs driver).
  constexpr std::string_view kPod = "pod";
  if (!is_of_kubelet(cgroup)) return "";
  for (auto at = cgroup.find(kPod); at != std::string_view::npos; at = cgroup.find(kPod, at + 1)) {
    const std::string_view rest = cgroup.substr(at + kPod.size());
    std::string uid(rest.substr(0, rest.find_first_not_of("0123456789abcdef-_")));
    constexpr std::size_t kDashed = 36;
    constexpr std::size_t kPlain = 32;
    if (uid.size() != kDashed && uid.size() != kPlain) continue;
    std::ranges::replace(uid, '_', '-');
    return uid;
  }
  return "";
}

}  // namespace ferry
