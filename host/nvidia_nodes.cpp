// SPDX-License-Identifier: Apache-2.0
#include "host/nvidia_nodes.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>

namespace ferry {
namespace {

constexpr std::string_view kSwitchDriver = "nvidia-nvswitch";  // of PCI functions, and in proc/devices

std::optional<std::uint32_t> number_at_start(std::string_view text) {
  std::uint32_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc()) return {};
  return number;
}

std::string_view without_blanks(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text;
}

void add_gpus_node(const HostFs& host, UseQuestion& question) {
  constexpr std::uint32_t kMajor = 195;
  const auto text =
      host.read_file(std::filesystem::path("proc/driver/nvidia/gpus") / question.device / "information");
  if (!text) return;
  const auto minor = device_minor(*text);
  if (!minor) return;
  question.nodes.push_back(
      {.name = "/dev/nvidia" + std::to_string(*minor), .number = {.major = kMajor, .minor = *minor}});
}

// Numbered from 0 as they are found; the driver's control node, 255, holds no switch.
void add_switches_nodes(const HostFs& host, UseQuestion& question) {
  constexpr std::uint32_t kMostSwitches = 64;
  const auto driver =
      host.link_name(std::filesystem::path("sys/bus/pci/devices") / question.device / "driver");
  if (!driver || *driver != kSwitchDriver) return;
  const auto major = character_major(host.read_file("proc/devices").value_or(""), kSwitchDriver);
  if (!major) return;
  for (std::uint32_t minor = 0; minor < kMostSwitches; ++minor) {
    question.nodes.push_back({.name = "/dev/nvidia-nvswitch*", .number = {.major = *major, .minor = minor}});
  }
}

}  // namespace

std::optional<std::uint32_t> device_minor(std::string_view information) {
  constexpr std::string_view kKey = "Device Minor:";
  const auto at = information.find(kKey);
  if (at == std::string_view::npos) return {};
  return number_at_start(without_blanks(information.substr(at + kKey.size())));
}

// "Character devices:", lines such as "195 nvidia" or "234 nvidia-nvswitch", an empty line, "Block devices:".
std::optional<std::uint32_t> character_major(std::string_view devices, std::string_view driver) {
  while (!devices.empty()) {
    const auto end = std::min(devices.find('\n'), devices.size());
    const std::string_view line = without_blanks(devices.substr(0, end));
    devices.remove_prefix(std::min(end + 1, devices.size()));
    if (line.starts_with("Block")) break;
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos || line.substr(blank + 1) != driver) continue;
    return number_at_start(line);
  }
  return {};
}

void add_nvidia_nodes(const HostFs& host, UseQuestion& question) {
  add_gpus_node(host, question);
  add_switches_nodes(host, question);
}

}  // namespace ferry
