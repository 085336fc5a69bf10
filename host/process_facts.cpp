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
    const auto end = std::ranges::find_if_not(rest, is_uid_letter);
    std::string uid(rest.begin(), end);
    constexpr std::size_t kDashed = 36;
    constexpr std::size_t kPlain = 32;
    if (uid.size() != kDashed && uid.size() != kPlain) continue;
    std::ranges::replace(uid, '_', '-');
    return uid;
  }
  return "";
}

Holder describe_process(const HostFs& host, int pid, std::string what) {
  const auto directory = std::filesystem::path("proc") / std::to_string(pid);
  const std::string comm = host.read_attribute(directory / "comm").value_or("?");
  const auto vm = vm_name(host.read_file(directory / "cmdline").value_or(""));
  return {.kind = vm ? Holder::Kind::virtual_machine : Holder::Kind::process,
          .name = vm && !vm->empty() ? *vm : comm,
          .pid = pid,
          .what = std::move(what),
          .pod_uid = pod_uid(host.read_file(directory / "cgroup").value_or(""))};
}

}  // namespace ferry
