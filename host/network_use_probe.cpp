// SPDX-License-Identifier: Apache-2.0
#include "host/network_use_probe.h"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "vfio/pci_function.h"

namespace ferry {
namespace {

// "0x1003". Unreadable flags count as up, since a link that was cut cannot be repaired remotely.
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

struct Links {
  std::vector<std::filesystem::path> seen;
  bool any_hidden = false;
};

// Finds net/enp2s0 of a network card, virtio3/net/eth0 of a virtual one, usb3/3-1/3-1:1.0/net/enx... of a USB
// adapter. Symbolic links lead out of the function's directory and are not followed.
void collect_links(const HostFs& host, const std::filesystem::path& directory, int depth, Links& links) {
  const auto entries = host.entries(directory);
  const bool of_links = directory.filename() == "net";
  if (!entries) {
    if (of_links && !is_gone(entries.error())) links.any_hidden = true;
    return;
  }
  bool any = false;
  for (const auto& [name, is_directory] : *entries) {
    if (!is_directory) continue;
    any = true;
    if (of_links) {
      links.seen.push_back(directory / name);
    } else if (depth > 0) {
      collect_links(host, directory / name, depth - 1, links);
    }
  }
  if (of_links && !any) links.any_hidden = true;
}

}  // namespace

Result<UseReport> NetworkUseProbe::look(std::span<const UseQuestion> questions) {
  constexpr int kDeepest = 16;  // behind five hubs: usb3/3-1/3-1.1/.../3-1.1.1.1.1.1:1.0/net
  UseReport report;
  for (const UseQuestion& question : questions) {
    const auto address = PciAddress::parse(question.device);
    if (!address) continue;
    Links links;
    collect_links(*host_, sysfs_path(*address), kDeepest, links);
    const auto add = [&](std::string name) {
      report.holders[question.device].push_back({.kind = Holder::Kind::network_link,
                                                 .name = std::move(name),
                                                 .pid = {},
                                                 .what = {},
                                                 .pod_uid = {}});
    };
    for (const std::filesystem::path& link : links.seen) {
      if (is_up(*host_, link)) add(link.filename().string());
    }
    if (links.any_hidden) add({});
  }
  return report;
}

}  // namespace ferry
