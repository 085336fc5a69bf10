// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <string>

#include "common/text/text.h"
#include "host/usage/use_probes.h"
#include "hostfs/check_reading.h"
#include "hostfs/host_writer.h"
#include "hostfs/stuck_writes.h"

namespace ferry::host {
namespace {

constexpr std::string_view kSwitchDriver = "nvidia-nvswitch";  // of PCI functions, and in proc/devices

// The driver numbers the switches from 0 as it finds them. Its control node, 255, belongs to no switch.
void add_switches_nodes(const HostFs& host, vfio::UseQuestion& question) {
  constexpr std::uint32_t kMostSwitches = 64;
  const auto driver =
      host.link_name(std::filesystem::path("sys/bus/pci/devices") / question.device / "driver");
  if (!driver || *driver != kSwitchDriver) return;
  const auto major = character_major(host.read_file("proc/devices").value_or(""), kSwitchDriver);
  if (!major) return;
  for (std::uint32_t minor = 0; minor < kMostSwitches; ++minor)
    question.nodes.push_back({.name = "/dev/nvidia-nvswitch*", .number = {.major = *major, .minor = minor}});
}

}  // namespace

std::optional<std::uint32_t> device_minor(std::string_view information) {
  constexpr std::string_view kKey = "Device Minor:";
  const auto at = information.find(kKey);
  if (at == std::string_view::npos) return {};
  return number_at_start(trimmed(information.substr(at + kKey.size()), " \t"));
}

// The format: "Character devices:", lines such as "195 nvidia", an empty line, "Block devices:".
std::optional<std::uint32_t> character_major(std::string_view devices, std::string_view driver) {
  while (!devices.empty()) {
    const std::string_view line = trimmed(cut(devices, '\n'), " \t");
    if (line.starts_with("Block")) break;
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos || line.substr(blank + 1) != driver) continue;
    return number_at_start(line);
  }
  return {};
}

ReadElsewhere read_by_another_process(const HostFs& host) {
  struct Asker {
    explicit Asker(const std::filesystem::path& root) : host(root), writer(host) {}
    HostFs host;
    SpawningWriter writer;
  };
  return [asker = std::make_shared<Asker>(host.root())](const std::filesystem::path& file) {
    return asker->writer.read(file, kReadDeadline);
  };
}

Result<> add_nvidia_nodes(const HostFs& host, const ReadElsewhere& read, vfio::UseQuestion& question) {
  constexpr std::uint32_t kMajor = 195;
  add_switches_nodes(host, question);
  const auto file = std::filesystem::path("proc/driver/nvidia/gpus") / question.device / "information";
  if (!host.exists(file)) return {};

  // The driver takes a lock of the GPU to answer, so a stuck write to the GPU would block the read.
  const auto stuck = stuck_writes(host);
  if (!stuck) return fail(stuck.error());
  for (const StuckWrite& act : *stuck) {
    if (concerns(act, question.device))
      return fail(Errc::stuck, "an earlier act has not returned from the kernel: " + act.act, kLockedHint);
  }

  const auto text = read(file);
  if (!text) return is_gone(text.error()) ? Result<>() : fail(text.error());
  if (const auto minor = device_minor(*text))
    question.nodes.push_back(
        {.name = "/dev/nvidia" + std::to_string(*minor), .number = {.major = kMajor, .minor = *minor}});
  return {};
}

}  // namespace ferry::host
