// SPDX-License-Identifier: Apache-2.0
// The facts that the registers of a GPU of Hopper or newer, or of an NVSwitch, show without a driver.
// Nothing here has been tried on hardware: the offsets and their meaning are those of NVIDIA's
// gpu-admin-tools (chip.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/words.h"
#include "vfio/registers/chip.h"
#include "vfio/registers/registers.h"

namespace ferry::vfio {

/// The confidential-computing mode of a GPU, by its number in the mode register.
enum class CcMode : std::uint8_t {
  off = 0,
  on = 1,
  invalid = 2,   ///< debugging is open, and the mode is not on: setting any mode repairs it
  devtools = 3,  ///< as `on` for the VM, but debuggers work and nothing is protected
};
inline constexpr Words<CcMode, 4> kCcModes = {
    {{"off", CcMode::off}, {"on", CcMode::on}, {"invalid", CcMode::invalid}, {"devtools", CcMode::devtools}}};
constexpr const auto& words_of(CcMode /*mode*/) {
  return kCcModes;
}

/// A fact that the chip has, and that is not known now. `fact` is its key in register_fields.h.
struct UnknownFact {
  std::string fact;
  std::string reason;
  bool operator==(const UnknownFact&) const = default;
};

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

/// An absent fact is in `unknown` with its reason, or the chip has no such fact.
struct RegisterFacts {
  std::string chip = {};     ///< "gh100", "ls10"; empty: not known
  std::string problem = {};  ///< why no fact could be read; empty: some could
  bool in_use = false;       ///< the problem: a VM or another program has the function open
  std::optional<bool> booted = {};
  std::optional<bool> recovery = {};  ///< the firmware has started in recovery mode
  std::optional<CcMode> cc_mode = {};
  std::optional<bool> ppcie = {};
  std::optional<bool> bar0_filter = {};
  std::optional<bool> nvlink_encryption = {};
  std::optional<bool> scrubbed = {};               ///< the memory has been cleared since the last reset
  std::optional<std::uint64_t> memory_bytes = {};  ///< of the whole GPU
  std::optional<bool> ecc = {};                    ///< of the memory
  std::string chip_id = {};                        ///< 16 hexadecimal digits; empty: not known
  std::vector<UnknownFact> unknown = {};

  /// "off", "on", "devtools", "ppcie" or "invalid", as labels have the mode; empty: not known.
  std::string_view mode() const;
  bool operator==(const RegisterFacts&) const = default;
};

/// Reads each register once and waits for none: a GPU that still boots has `booted` false. Reads no
/// register that the mode blocks, but that of the recovery mode, which comes before.
RegisterFacts read_register_facts(Registers& registers, const Chip& chip);

/// The same for an NVSwitch, whose chip is in its registers.
RegisterFacts read_switch_facts(Registers& registers);

}  // namespace ferry::vfio
