// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/pci_address.h"

#include <optional>

#include <fmt/format.h>

#include "common/text/text.h"

namespace ferry::vfio {
namespace {

// All of `text` as one hex number of min..max digits, without a sign or prefix.
std::optional<std::uint32_t> hex(std::string_view text, std::size_t min, std::size_t max) {
  if (text.size() < min || text.size() > max) return std::nullopt;
  return whole_number(text, 16);
}

std::optional<PciAddress> parse_exactly(std::string_view text) {
  // DDDD[D...]:BB:SS.F is measured from the end, since only the domain varies in length.
  constexpr std::size_t kTail = 8;  // ":BB:SS.F"
  if (text.size() < kTail + 4) return std::nullopt;
  const std::string_view tail = text.substr(text.size() - kTail);
  if (tail[0] != ':' || tail[3] != ':' || tail[6] != '.') return std::nullopt;
  const auto domain = hex(text.substr(0, text.size() - kTail), 4, 8);
  const auto bus = hex(tail.substr(1, 2), 2, 2);
  const auto device = hex(tail.substr(4, 2), 2, 2);
  const auto function = hex(tail.substr(7, 1), 1, 1);
  if (!domain || !bus || !device || !function || *device > 31 || *function > 7) return std::nullopt;
  return PciAddress{.domain = *domain,
                    .bus = static_cast<std::uint8_t>(*bus),
                    .device = static_cast<std::uint8_t>(*device),
                    .function = static_cast<std::uint8_t>(*function)};
}

}  // namespace

Result<PciAddress> PciAddress::parse(std::string_view text) {
  if (auto address = parse_exactly(text)) return *address;
  std::string hint = "an address is domain:bus:device.function, as in 0000:3b:00.0";
  if (auto longer = parse_exactly("0000:" + std::string(text))) hint = "did you mean " + longer->text() + "?";
  return fail(Errc::usage, fmt::format("'{}' is not a PCI address", text), std::move(hint));
}

std::string PciAddress::text() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

}  // namespace ferry::vfio
