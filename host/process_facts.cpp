// SPDX-License-Identifier: Apache-2.0
#include "host/process_facts.h"

#include <algorithm>
#include <vector>

namespace ferry {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// QEMU's option syntax: commas separate, a comma in a value is doubled; a first word without '=' is the value
// of `guest`.
std::string guest_of(std::string_view option) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < option.size(); ++i) {
    if (option[i] != ',') {
      words.back() += option[i];
    } else if (i + 1 < option.size() && option[i + 1] == ',') {
      words.back() += ',';
      ++i;
    } else {
      words.emplace_back();
    }
  }
  constexpr std::string_view kGuest = "guest=";
  for (const std::string& word : words) {
    if (word.starts_with(kGuest)) return word.substr(kGuest.size());
  }
  return words.front().find('=') == std::string::npos ? words.front() : "";
}

/// A line of proc/PID/cgroup: "ID:CONTROLLERS:/PATH" (cgroups(7)).
struct Hierarchy {
  bool of_systemd = false;  ///< cgroup v2's, or v1's that systemd keeps its units in
  std::string_view path;
};

std::optional<Hierarchy> hierarchy_of(std::string_view line) {
  const auto first = line.find(':');
  if (first == std::string_view::npos) return {};
  const auto second = line.find(':', first + 1);
  if (second == std::string_view::npos) return {};
  const auto controllers = line.substr(first + 1, second - first - 1);
  return Hierarchy{.of_systemd = controllers.empty() || controllers == "name=systemd",
                   .path = line.substr(second + 1)};
}

bool is_at_or_above(std::string_view group, std::string_view other) {
  return other.starts_with(group) && (other.size() == group.size() || other[group.size()] == '/');
}

bool is_service_name(std::string_view name) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:-_.\\@";
  constexpr std::string_view kService = ".service";
  return name.size() > kService.size() && name.ends_with(kService) &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

// "/system.slice/system-a.slice/a@1.service": the service, when all above it are the system's slices.
std::string_view service_at(std::string_view path) {
  constexpr std::string_view kSlice = "/system.slice/";
  if (!path.starts_with(kSlice)) return {};
  path.remove_prefix(kSlice.size());
  for (auto end = path.find('/'); end != std::string_view::npos; end = path.find('/')) {
    const auto slice = path.substr(0, end);
    if (!slice.starts_with("system-") || !slice.ends_with(".slice")) return {};
    path.remove_prefix(end + 1);
  }
  if (path.starts_with('_')) path.remove_prefix(1);
  return is_service_name(path) ? path : std::string_view{};
}

bool is_uid_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-' || c == '_';
}

}  // namespace

std::optional<std::string> vm_name(std::string_view cmdline) {
  const auto arguments = split(cmdline, '\0');
  if (arguments.empty()) return {};
  const auto program = arguments[0].substr(arguments[0].find_last_of('/') + 1);
  if (!program.starts_with("qemu-system-") && program != "qemu-kvm" && program != "kvm") return {};
  for (std::size_t i = 1; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "-name" || arguments[i] == "--name") return guest_of(arguments[i + 1]);
  }
  return "";
}

std::string pod_uid(std::string_view cgroup) {
  // …/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f2c…_….slice/… (systemd driver) or
  // …/kubepods/burstable/pod0f2c…-…/… (cgroupfs driver).
  constexpr std::string_view kPod = "pod";
  if (cgroup.find("kubepods") == std::string_view::npos) return "";
  for (auto at = cgroup.find(kPod); at != std::string_view::npos; at = cgroup.find(kPod, at + 1)) {
    const std::string_view rest = cgroup.substr(at + kPod.size());
    const auto* const end = std::ranges::find_if_not(rest, is_uid_letter);
    std::string uid(rest.begin(), end);
    constexpr std::size_t kDashed = 36;
    constexpr std::size_t kPlain = 32;
    if (uid.size() != kDashed && uid.size() != kPlain) continue;
    std::ranges::replace(uid, '_', '-');
    return uid;
  }
  return "";
}

std::string service_of(std::string_view cgroup) {
  std::vector<Hierarchy> hierarchies;
  std::string_view own;
  for (const std::string_view line : split(cgroup, '\n')) {
    const auto hierarchy = hierarchy_of(line);
    if (!hierarchy) return "";
    hierarchies.push_back(*hierarchy);
    if (!hierarchy->of_systemd || hierarchy->path == "/") continue;
    if (!own.empty() && own != hierarchy->path) return "";
    own = hierarchy->path;
  }
  // Container engines of v1 put processes into groups of their own in some hierarchies only.
  const bool agree = std::ranges::all_of(hierarchies, [&](const Hierarchy& hierarchy) {
    return hierarchy.path == "/" || is_at_or_above(hierarchy.path, own);
  });
  return agree ? std::string(service_at(own)) : "";
}

Holder describe_process(const HostFs& host, int pid, std::string what) {
  const auto directory = std::filesystem::path("proc") / std::to_string(pid);
  const std::string comm = host.read_attribute(directory / "comm").value_or("?");
  const auto vm = vm_name(host.read_file(directory / "cmdline").value_or(""));
  const std::string cgroup = host.read_file(directory / "cgroup").value_or("");
  return {.kind = vm ? Holder::Kind::virtual_machine : Holder::Kind::process,
          .name = vm && !vm->empty() ? *vm : comm,
          .pid = pid,
          .what = std::move(what),
          .pod_uid = pod_uid(cgroup),
          .service = vm ? "" : service_of(cgroup)};
}

}  // namespace ferry
