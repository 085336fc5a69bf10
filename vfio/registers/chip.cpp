// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/chip.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace ferry::vfio {
namespace {

struct DeviceIds {
  std::uint16_t first;
  std::uint16_t last;
  Chip chip;
};
constexpr std::array<DeviceIds, 10> kGpus = {{
    {0x22f0, 0x237f, {"gh100", ChipFamily::hopper}},
    {0x2900, 0x297f, {"gb100", ChipFamily::gb10x}},
    {0x2980, 0x29ff, {"gb102", ChipFamily::gb10x}},
    {0x2b80, 0x2bff, {"gb202", ChipFamily::gb20x}},
    {0x2c00, 0x2c7f, {"gb203", ChipFamily::gb20x}},
    {0x2d00, 0x2d7f, {"gb206", ChipFamily::gb20x}},
    {0x2d80, 0x2dff, {"gb207", ChipFamily::gb20x}},
    {0x2f00, 0x2f7f, {"gb205", ChipFamily::gb20x}},
    {0x3180, 0x31ff, {"gb110", ChipFamily::gb10x}},
    {0x3200, 0x327f, {"gb112", ChipFamily::gb10x}},
}};

constexpr Field bit(std::uint32_t offset, unsigned number) {
  return {.offset = offset, .shift = number, .mask = 1};
}
constexpr Field whole(std::uint32_t offset, std::uint32_t mask = 0xffffffff) {
  return {.offset = offset, .shift = 0, .mask = mask};
}

constexpr RegisterPlaces kHopper = {.boot = 0x000200bc,
                                    .recovery = bit(0x00020120, 30),
                                    .last_good = 0,
                                    .cc_mode = whole(0x001182cc, 0x3),
                                    .ppcie = bit(0x001182cc, 5),
                                    .bar0_filter = {},
                                    .nvlink_encryption = {},
                                    .scrubbed = whole(0x00100b20),
                                    .memory = whole(0x00100ce0),
                                    .ecc = bit(0x009a0470, 0),
                                    .chip_id = 0x00820344};
constexpr RegisterPlaces kBlackwell = {.boot = 0x000200bc,
                                       .recovery = whole(0x008aa128, 0xff),
                                       .last_good = 1,
                                       .cc_mode = whole(0x00000590, 0x3),
                                       .ppcie = {},
                                       .bar0_filter = bit(0x00000590, 2),
                                       .nvlink_encryption = bit(0x00000590, 6),
                                       .scrubbed = whole(0x008a004c),
                                       .memory = whole(0x001fa3e0),
                                       .ecc = bit(0x009a0470, 0),
                                       .chip_id = 0x00820344};
constexpr RegisterPlaces kWorkstationBlackwell = [] {
  RegisterPlaces places = kBlackwell;
  places.boot = 0x00ad00bc;
  return places;
}();
constexpr RegisterPlaces kLs10 = {.boot = 0x000660bc,
                                  .recovery = bit(0x00066120, 30),
                                  .last_good = 0,
                                  .cc_mode = {},
                                  .ppcie = bit(0x00028c50, 0),
                                  .bar0_filter = {},
                                  .nvlink_encryption = {},
                                  .scrubbed = {},
                                  .memory = {},
                                  .ecc = {},
                                  .chip_id = 0};

}  // namespace

std::optional<Chip> gpu_chip(std::uint16_t device) {
  const auto* const found = std::ranges::find_if(
      kGpus, [&](const DeviceIds& ids) { return ids.first <= device && device <= ids.last; });
  return found == kGpus.end() ? std::nullopt : std::optional(found->chip);
}

std::optional<Chip> gpu_chip(std::string_view ids) {
  constexpr std::string_view kVendor = "10de:";
  std::uint16_t device = 0;
  if (!ids.starts_with(kVendor)) return std::nullopt;
  ids.remove_prefix(kVendor.size());
  const auto [end, error] = std::from_chars(ids.data(), ids.data() + ids.size(), device, 16);
  return error == std::errc() && end == ids.data() + ids.size() ? gpu_chip(device) : std::nullopt;
}

std::optional<Chip> switch_chip(std::uint32_t boot_0) {
  if (boot_0 == 0x007000a1) return Chip{.name = "ls10", .family = ChipFamily::ls10};
  if (boot_0 == 0x006000a1) return Chip{.name = "lr10", .family = ChipFamily::lr10};
  return std::nullopt;
}

const RegisterPlaces* register_places(ChipFamily family) {
  switch (family) {
    case ChipFamily::hopper:
      return &kHopper;
    case ChipFamily::gb10x:
      return &kBlackwell;
    case ChipFamily::gb20x:
      return &kWorkstationBlackwell;
    case ChipFamily::ls10:
      return &kLs10;
    case ChipFamily::lr10:
      break;
  }
  return nullptr;
}

std::uint64_t memory_bytes(std::uint32_t word) {
  constexpr unsigned kMiBShift = 20;
  constexpr unsigned kEccBit = 30;
  const unsigned scale = word & 0xfU;
  const std::uint64_t magnitude = (word >> 4U) & 0xffffffU;
  const std::uint64_t bytes = magnitude << (scale + kMiBShift);
  return ((word >> kEccBit) & 1U) != 0 ? bytes / 16 * 15 : bytes;
}

}  // namespace ferry::vfio
