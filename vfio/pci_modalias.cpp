// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci_modalias.h"

#include <charconv>

namespace ferry {
namespace {

/// Takes fields off the front of a text: a marker, then a number with a given count of digits.
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  std::uint16_t take(std::string_view marker, std::size_t digits) {
    std::uint16_t value = 0;
    const std::size_t size = marker.size() + digits;
    if (!rest_.starts_with(marker) || rest_.size() < size) return fail();
    const char* const end = rest_.data() + size;
    const auto [stopped, error] = std::from_chars(rest_.data() + marker.size(), end, value, 16);
    if (error != std::errc() || stopped != end) return fail();
    rest_.remove_prefix(size);
    return value;
  }
  bool all_taken() const { return good_ && rest_.empty(); }

 private:
  std::uint16_t fail() {
    good_ = false;
    return 0;
  }
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::optional<PciModalias> parse_pci_modalias(std::string_view text) {
  constexpr std::size_t kId = 8;
  constexpr std::size_t kByte = 2;
  Fields fields(text);
  PciModalias modalias;
  modalias.vendor = fields.take("pci:v", kId);
  modalias.device = fields.take("d", kId);
  modalias.subsystem_vendor = fields.take("sv", kId);
  modalias.subsystem_device = fields.take("sd", kId);
  for (const auto* const part : {"bc", "sc", "i"})
    modalias.class_code = modalias.class_code << 8U | fields.take(part, kByte);
  if (!fields.all_taken()) return std::nullopt;
  return modalias;
}

}  // namespace ferry
