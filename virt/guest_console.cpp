// SPDX-License-Identifier: Apache-2.0
#include "virt/guest_console.h"

#include <array>
#include <charconv>
#include <optional>
#include <ranges>

#include <fmt/ranges.h>

namespace ferry::virt {
namespace {

constexpr std::string_view kDevice = "GUEST-PCI ";

std::string_view next_word(std::string_view& text) {
  const auto end = std::min(text.find(' '), text.size());
  const auto word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// Parses exactly `name=` and `digits` hexadecimal digits.
std::optional<std::uint32_t> field(std::string_view word, std::string_view name, std::size_t digits) {
  if (!word.starts_with(name) || word.size() != name.size() + 1 + digits || word[name.size()] != '=')
    return {};
  word.remove_prefix(name.size() + 1);
  std::uint32_t value = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
  if (failure != std::errc() || end != word.data() + word.size()) return {};
  return value;
}

std::optional<GuestDevice> device_of(std::string_view text) {
  const auto address = vfio::PciAddress::parse(next_word(text));
  const auto vendor = field(next_word(text), "vendor", 4);
  const auto device = field(next_word(text), "device", 4);
  const auto class_code = field(next_word(text), "class", 6);
  const auto subsystem_vendor = field(next_word(text), "subsystem_vendor", 4);
  const auto subsystem_device = field(next_word(text), "subsystem_device", 4);
  if (!address || !vendor || !device || !class_code || !subsystem_vendor || !subsystem_device ||
      !text.empty()) {
    return {};
  }
  return GuestDevice{.address = *address,
                     .ids = {.vendor = static_cast<std::uint16_t>(*vendor),
                             .device = static_cast<std::uint16_t>(*device),
                             .subsystem_vendor = static_cast<std::uint16_t>(*subsystem_vendor),
                             .subsystem_device = static_cast<std::uint16_t>(*subsystem_device)},
                     .class_code = *class_code};
}

}  // namespace

void GuestConsole::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n') {
      take_line();
      line_.clear();
    } else if (c != '\r') {
      line_ += c;
    }
  }
}

void GuestConsole::take_line() {
  if (line_.empty()) return;
  constexpr std::size_t kTail = 4;
  if (last_.size() == kTail) last_.erase(last_.begin());
  last_.push_back(line_);
  if (line_.ends_with("GUEST-READY")) ready_ = true;
  // Firmware leaves the cursor, and its escape sequences, in front of the first line.
  const auto at = line_.find(kDevice);
  if (at == std::string::npos) return;
  if (auto device = device_of(std::string_view(line_).substr(at + kDevice.size()))) {
    devices_.push_back(*device);
  } else {
    unreadable_.push_back(line_);
  }
}

std::string GuestConsole::tail() const {
  auto lines = last_;
  if (!line_.empty()) lines.push_back(line_);
  return lines.empty() ? "nothing" : fmt::format("{}", fmt::join(lines, " | "));
}

}  // namespace ferry::virt
