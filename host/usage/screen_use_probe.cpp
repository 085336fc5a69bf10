// SPDX-License-Identifier: Apache-2.0
#include "host/usage/screen_use_probe.h"

#include "vfio/pci/firmware_framebuffer.h"
#include "vfio/pci/inventory.h"

namespace ferry::host {

Result<vfio::UseReport> ScreenUseProbe::look(std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  std::optional<vfio::MemoryMap> map;
  for (const vfio::UseQuestion& question : questions) {
    const auto address = vfio::PciAddress::parse(question.device);
    if (!address) continue;
    const auto function = vfio::read_function(*host_, *address);
    if (!function || vfio::on_vfio_driver(*function)) continue;
    auto& holders = report.holders[question.device];
    if (function->boot_display) {
      holders.push_back({.kind = vfio::Holder::Kind::boot_display,
                         .name = "boot_vga",
                         .pid = {},
                         .what = {},
                         .pod_uid = {}});
    }
    const auto ranges = host_->read_attribute(vfio::sysfs_path(*address) / "resource");
    if (!ranges) {
      if (!is_gone(ranges.error()))
        report.unknown.push_back("firmware framebuffers: " + ranges.error().message);
      continue;
    }
    if (!map) {
      const auto claims = host_->read_file("proc/iomem");
      map = vfio::parse_memory_map(claims.value_or(""));
      if (!claims) {
        report.unknown.push_back("firmware framebuffers: " + claims.error().message);
      } else if (map->hidden()) {
        report.unknown.emplace_back("firmware framebuffers: /proc/iomem hides all addresses");
      }
    }
    if (const auto found = vfio::firmware_framebuffer(*map, vfio::parse_pci_resources(*ranges).bars)) {
      holders.push_back({.kind = vfio::Holder::Kind::framebuffer,
                         .name = found->name,
                         .pid = {},
                         .what = {},
                         .pod_uid = {}});
    }
  }
  return report;
}

}  // namespace ferry::host
