// SPDX-License-Identifier: Apache-2.0
#include "cli/captured_config.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ferry {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kConventionalBytes = 256;
constexpr std::size_t kEntry = 4;  // the least size of a list's entry, and its alignment

std::uint32_t byte_at(std::string_view config, std::size_t at) {
  return static_cast<std::uint8_t>(config[at]);
}
std::uint32_t word_at(std::string_view config, std::size_t at) {
  return byte_at(config, at) | (byte_at(config, at + 1) << 8U);
}

void blank(std::string& config, std::size_t at, std::size_t count) {
  for (std::size_t i = at; i < std::min(at + count, config.size()); ++i) config[i] = '\0';
}

void blank_vpd(std::string& config) {
  constexpr std::size_t kFirst = 0x34;
  constexpr std::uint32_t kVpd = 0x03;
  constexpr std::size_t kData = 4;
  std::size_t at = byte_at(config, kFirst) & 0xfcU;  // the lower two bits are reserved
  // The space has room for so many entries: a longer list is a loop.
  for (std::size_t left = kConventionalBytes / kEntry; left > 0 && at >= kHeaderBytes; --left) {
    if (byte_at(config, at) == kVpd) blank(config, at + kData, 4);
    at = byte_at(config, at + 1) & 0xfcU;
  }
}

void blank_serial_number(std::string& config) {
  constexpr std::uint32_t kSerialNumber = 0x0003;
  constexpr std::size_t kNumber = 4;
  std::size_t at = kConventionalBytes;
  for (std::size_t left = config.size() / kEntry;
       left > 0 && at >= kConventionalBytes && at + kEntry <= config.size(); --left) {
    if (word_at(config, at) == kSerialNumber) blank(config, at + kNumber, 8);
    at = (word_at(config, at + 2) >> 4U) & 0xffcU;
  }
}

}  // namespace

std::string without_serial_numbers(std::string config) {
  if (config.size() < kConventionalBytes) return config;  // only root can read the capabilities
  // A broken list may lead into blanked bytes, so each list is walked only once.
  blank_vpd(config);
  blank_serial_number(config);
  return config;
}

}  // namespace ferry
