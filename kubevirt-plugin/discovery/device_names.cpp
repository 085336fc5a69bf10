// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/device_names.h"

#include <array>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"

// The table is embedded unchanged, so nothing is generated, parsed at start or relocated.
// NOLINTNEXTLINE(hicpp-no-assembler)
asm(R"(
  .pushsection .rodata.ferry_pci_names, "a", @progbits
ferry_pci_names_begin:
  .incbin ")" FERRY_PCI_NAMES R"("
ferry_pci_names_end:
  .popsection
)");
extern "C" {
// NOLINTBEGIN(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
extern const char ferry_pci_names_begin[];
extern const char ferry_pci_names_end[];
// NOLINTEND(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
}

namespace ferry::plugin {
namespace {

/// The vendor whose devices the shipped table names.
constexpr std::uint16_t kShippedVendor = 0x10de;

// The paths of pci.ids on Debian, Fedora, SUSE and Alpine.
constexpr std::array kPciIds = {"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids", "usr/share/pci.ids"};

std::optional<std::string> unless_empty(std::string_view text) {
  const std::string_view name = trimmed(text, " \t\r\v\f");
  return name.empty() ? std::nullopt : std::optional<std::string>(name);
}

/// The first name that `find` finds in the text of a pci.ids of the host.
template <typename Find>
std::optional<std::string> first_in_pci_ids(const HostFs& host, Find find) {
  for (const auto* const path : kPciIds)
    if (const auto text = host.read_file(path))
      if (auto name = find(*text)) return name;
  return std::nullopt;
}

}  // namespace

std::string_view shipped_device_names() {
  return {ferry_pci_names_begin, static_cast<std::size_t>(ferry_pci_names_end - ferry_pci_names_begin)};
}

std::optional<std::string> find_in_pci_ids(std::string_view text, std::uint16_t vendor,
                                           std::uint16_t device) {
  const std::string vendor_head = fmt::format("{:04x} ", vendor);
  const std::string device_head = fmt::format("\t{:04x} ", device);
  bool in_vendor = false;
  while (!text.empty()) {
    const auto line = cut(text, '\n');
    if (line.empty() || line.front() == '#' || line.front() == '\r') continue;
    if (line.front() != '\t') {
      if (in_vendor) return std::nullopt;
      in_vendor = line.starts_with(vendor_head);
    } else if (in_vendor && line.starts_with(device_head)) {
      return unless_empty(line.substr(device_head.size()));
    }
  }
  return std::nullopt;
}

std::optional<std::string> find_vendor_in_pci_ids(std::string_view text, std::uint16_t vendor) {
  const std::string head = fmt::format("{:04x} ", vendor);
  while (!text.empty()) {
    const auto line = cut(text, '\n');
    if (line.starts_with(head)) return unless_empty(line.substr(head.size()));
  }
  return std::nullopt;
}

std::optional<std::string> DeviceNames::find_vendor(std::uint16_t vendor) {
  const auto [entry, is_new] = vendors_.try_emplace(vendor);
  if (is_new)
    entry->second = first_in_pci_ids(
        host_, [&](const std::string& text) { return find_vendor_in_pci_ids(text, vendor); });
  return entry->second;
}

std::optional<std::string> DeviceNames::find(std::uint16_t vendor, std::uint16_t device) {
  const auto [entry, is_new] = seen_.try_emplace({vendor, device});
  if (is_new && vendor == kShippedVendor) {
    const std::string_view shipped = shipped_device_names();
    const std::string head = fmt::format("\n{:04x}\t", device);
    const auto line = shipped.find(head);
    const auto name = line == std::string_view::npos ? "" : shipped.substr(line + head.size());
    entry->second = unless_empty(name.substr(0, name.find_first_of("\t\n")));
  }
  if (is_new && !entry->second)
    entry->second = first_in_pci_ids(
        host_, [&](const std::string& text) { return find_in_pci_ids(text, vendor, device); });
  return entry->second;
}

}  // namespace ferry::plugin
