// SPDX-License-Identifier: Apache-2.0
// The knobs of a confidential mode. A knob is a setting in the board's firmware that outlives a power cycle
// and takes effect at the next reset of any kind, such as that of a VM's start. Source: as chip.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/result.h"
#include "common/text/words.h"
#include "vfio/confidential/fsp.h"
#include "vfio/registers/chip.h"

namespace ferry::vfio {

/// The modes that can be set, as labels have them.
enum class WantedMode : std::uint8_t {
  off,
  on,
  devtools,
  ppcie,  ///< protected PCIe: all GPUs and NVSwitches of a Hopper board are in one VM
};
inline constexpr Words<WantedMode, 4> kWantedModes = {{{"off", WantedMode::off},
                                                       {"on", WantedMode::on},
                                                       {"devtools", WantedMode::devtools},
                                                       {"ppcie", WantedMode::ppcie}}};
constexpr const auto& words_of(WantedMode /*mode*/) {
  return kWantedModes;
}

/// Knobs by their numbers in the firmware.
namespace knob {
inline constexpr std::uint32_t kDevtools = 6;
inline constexpr std::uint32_t kConfidential = 8;
inline constexpr std::uint32_t kBarFilter = 10;
inline constexpr std::uint32_t kProtectedPcie = 45;
}  // namespace knob

struct KnobValue {
  std::uint32_t knob = 0;
  std::uint32_t value = 0;
  bool operator==(const KnobValue&) const = default;
};

/// The knobs that a mode needs, in the order in which they are set. Empty: the chip does not have the mode.
std::vector<KnobValue> knobs_of(ChipFamily family, WantedMode mode);

/// The order in which values are set, whatever they were: confidential computing and protected PCIe are never
/// on together, and devtools is never on alone, which the firmware takes for an invalid mode.
std::vector<KnobValue> in_order(std::vector<KnobValue> values);

/// Absent: the firmware does not know the knob. Errors: as Fsp::call().
Result<std::optional<std::uint32_t>> read_knob(Fsp& fsp, std::uint32_t knob);
/// Errors: as Fsp::call(). Errc::failed, too: the knob reads back otherwise, as if the host may not set it.
Result<> write_knob(Fsp& fsp, const KnobValue& value);

}  // namespace ferry::vfio
