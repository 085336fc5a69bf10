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

}  // namespace

Result<UseReport> NetworkUseProbe::look(std::span<const UseQuestion> questions) {
  UseReport report;
  for (const UseQuestion& question : questions) {
    const auto address = PciAddress::parse(question.device);
    if (!address) continue;
    const auto links = sysfs_path(*address) / "net";
    for (const std::string& name : host_->list(links).value_or(std::vector<std::string>{})) {
      if (!is_up(*host_, links / name)) continue;
      report.holders[question.device].push_back(
          {.kind = Holder::Kind::network_link, .name = name, .pid = {}, .what = {}, .pod_uid = {}});
    }
  }
  return report;
}

}  // namespace ferry
