// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/pci_resources.h"

#include <array>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"

namespace ferry::vfio {
namespace {

// Parses hex with or without "0x": `resource` has the prefix, `resourceN_resize` has not.
std::optional<std::uint64_t> hex(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  return whole_number<std::uint64_t>(text, 16);
}

// Absent: the line is malformed. Size 0: the register does not exist.
std::optional<Bar> parse_line(std::string_view line) {
  std::array<std::uint64_t, 3> columns{};
  for (std::uint64_t& column : columns) {
    const auto value = hex(cut(line, ' '));
    if (!value) return std::nullopt;
    column = *value;
  }
  const auto [start, end, flags] = columns;
  if (start == 0 && end == 0) return Bar{.index = 0, .start = 0, .size = 0, .flags = flags};
  // The range ends before it begins, or covers all 64 bits, which no size can express.
  if (end < start || end - start == UINT64_MAX) return std::nullopt;
  return Bar{.index = 0, .start = start, .size = end - start + 1, .flags = flags};
}

}  // namespace

PciResources parse_pci_resources(std::string_view text) {
  constexpr unsigned kBars = 6;  // PCI Local Bus 3.0, 6.2.5: BARs of an endpoint's header
  PciResources out;
  for (unsigned index = 0; index <= kBars && !text.empty(); ++index) {
    auto bar = parse_line(cut(text, '\n'));
    if (!bar) {
      out.notes.push_back(fmt::format("line {} is no address range", index + 1));
    } else if (bar->size != 0) {
      bar->index = index;
      if (index < kBars) {
        out.bars.push_back(*bar);
      } else {
        out.rom = *bar;
      }
    }
  }
  return out;
}

std::optional<std::vector<std::uint64_t>> parse_resizable_sizes(std::string_view text) {
  const auto mask = hex(text);
  if (!mask) return std::nullopt;
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = 1; size != 0; size <<= 1U) {
    if ((*mask & size) != 0) sizes.push_back(size);  // bit n and 2^n are the same number
  }
  return sizes;
}

}  // namespace ferry::vfio
