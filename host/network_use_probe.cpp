// SPDX-License-Identifier: Apache-2.0
#include "host/network_use_probe.h"

#include <charconv>

#include "vfio/pci_function.h"

namespace ferry {
namespace {

// "0x1003": what cannot be read counts as up, since a link that is cut cannot be mended from afar.
bool is_up(const HostFs& host, const std::filesystem::path& link) {
  const auto text = host.read_attribute(link / "flags");
  constexpr std::string_view kHex = "0x";
  if (!text) return !is_gone(text.error());
  unsigned flags = 0;
  if (!text->starts_with(kHex) ||
      std::from_chars(text->data() + kHex.size(), text->data() + text->size(), flags, 16).ec != std::errc())
    return true;
  constexpr unsigned kIffUp = 0x1;
  return (flags & kIffUp) != 0;
}

// net/enp2s0 of a network card; virtio3/net/eth0, usb3/3-1/3-1:1.0/net/enx... further down of a virtual one
// and of a USB adapter at a GPU's port. Links lead out of the function's directory.
void collect_links(const HostFs& host, const std::filesystem::path& directory, int depth,
                   std::vector<std::filesystem::path>& links) {
  for (const auto& [name, is_directory] : host.entries(directory).value_or(std::vector<DirectoryEntry>{})) {
    if (!is_directory) continue;
    if (directory.filename() == "net") {
      links.push_back(directory / name);
    } else if (depth > 0) {
      collect_links(host, directory / name, depth - 1, links);
    }
  }
}

}  // namespace

Result<UseReport> NetworkUseProbe::look(std::span<const UseQuestion> questions) {
  constexpr int kDeepest = 16;  // behind five hubs: usb3/3-1/3-1.1/.../3-1.1.1.1.1.1:1.0/net
  UseReport report;
  for (const UseQuestion& question : questions) {
    const auto address = PciAddress::parse(question.device);
    if (!address) continue;
    std::vector<std::filesystem::path> links;
    collect_links(*host_, sysfs_path(*address), kDeepest, links);
    for (const std::filesystem::path& link : links) {
      if (!is_up(*host_, link)) continue;
      report.holders[question.device].push_back({.kind = Holder::Kind::network_link,
                                                 .name = link.filename().string(),
                                                 .pid = {},
                                                 .what = {},
                                                 .pod_uid = {}});
    }
  }
  return report;
}

}  // namespace ferry
