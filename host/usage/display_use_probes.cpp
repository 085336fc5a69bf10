// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>
#include <set>
#include <string>

#include "host/usage/use_probes.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/memory_map.h"
#include "vfio/quiesce/release.h"

namespace ferry::host {

Result<vfio::UseReport> screen_users(const HostFs& host, std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  std::optional<vfio::MemoryMap> map;
  for (const vfio::UseQuestion& question : questions) {
    const auto address = vfio::PciAddress::parse(question.device);
    if (!address) continue;
    const auto function = vfio::read_function(host, *address);
    if (!function || vfio::on_vfio_driver(*function)) continue;
    auto& users = report.users[question.device];
    if (function->boot_display)
      users.push_back({.kind = vfio::DeviceUser::Kind::boot_display, .name = "boot_vga", .what = {}});
    if (function->firmware_framebuffer) {
      users.push_back(
          {.kind = vfio::DeviceUser::Kind::framebuffer, .name = *function->firmware_framebuffer, .what = {}});
      continue;
    }
    const auto ranges = host.read_attribute(vfio::sysfs_path(*address) / "resource");
    if (!ranges) {
      if (!is_gone(ranges.error()))
        report.unknown.push_back("firmware framebuffers: " + ranges.error().message);
      continue;
    }
    if (!map) {
      const auto claims = host.read_file("proc/iomem");
      map = vfio::parse_memory_map(claims.value_or(""));
      if (!claims) {
        report.unknown.push_back("firmware framebuffers: " + claims.error().message);
      } else if (map->hidden()) {
        report.unknown.emplace_back("firmware framebuffers: /proc/iomem hides all addresses");
      }
    }
    if (const auto found = vfio::firmware_framebuffer(*map, vfio::parse_pci_resources(*ranges).bars))
      users.push_back({.kind = vfio::DeviceUser::Kind::framebuffer, .name = found->name, .what = {}});
  }
  return report;
}

namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const HostFs& host, const fs::path& directory, std::string_view beginning) {
  auto names = host.list(directory).value_or(std::vector<std::string>{});
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(beginning); });
  return names;
}

// The framebuffers' nodes, by PCI address. The firmware's framebuffer has no PCI function above it.
std::map<std::string, std::string> framebuffers(const HostFs& host) {
  std::map<std::string, std::string> out;
  for (const std::string& name : names_in(host, "sys/class/graphics", "fb")) {
    const auto device = host.link_name(fs::path("sys/class/graphics") / name / "device");
    if (device) out.emplace(*device, "/dev/" + name);
  }
  return out;
}

}  // namespace

Result<vfio::UseReport> console_users(const HostFs& host, std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  const fs::path nvidia_drm = fs::path("sys/module") / vfio::kConsoleModule;
  if (!host.exists(nvidia_drm)) return report;
  std::map<std::string, std::string> served;  // nodes of DRM cards that nvidia_drm may serve, by PCI address
  for (const std::string& name :
       host.list("sys/bus/pci/drivers/nvidia").value_or(std::vector<std::string>{})) {
    const auto address = vfio::PciAddress::parse(name);
    if (!address) continue;
    const auto cards = names_in(host, vfio::sysfs_path(*address) / "drm", "card");
    if (!cards.empty()) served[address->text()] = "/dev/dri/" + cards.front();
  }
  if (served.empty()) return report;

  const auto shown = framebuffers(host);
  // A module that lacks the parameter lacks the feature.
  const auto modeset = host.read_attribute(nvidia_drm / "parameters/modeset");
  if (!modeset && !is_gone(modeset.error()))
    report.unknown.emplace_back("consoles: modeset of nvidia_drm cannot be read");
  std::set<std::string> all;
  for (const auto& [address, node] : served) all.insert(address);
  for (const vfio::UseQuestion& question : questions) {
    const auto card = served.find(question.device);
    const auto framebuffer = shown.find(question.device);
    if (card == served.end() || (modeset.value_or("") != "Y" && framebuffer == shown.end())) continue;
    auto also = all;
    also.erase(question.device);
    report.users[question.device] = {{.kind = vfio::DeviceUser::Kind::console,
                                      .name = vfio::kConsoleModule,
                                      .what = framebuffer == shown.end() ? card->second : framebuffer->second,
                                      .also = std::move(also)}};
  }
  return report;
}

}  // namespace ferry::host
