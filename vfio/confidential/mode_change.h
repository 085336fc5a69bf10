// SPDX-License-Identifier: Apache-2.0
// Changes the confidential mode of GPUs and NVSwitches: of all, or of none. Not tried on hardware.
//
// A change reads all knobs, records them, sets them on every device, resets every device, and reads the mode
// registers. If a step fails, all devices get their recorded knobs back. A knob that was set and not followed
// by a reset would take effect at the start of a VM, so undo_mode_change() undoes from the record a change
// that a crash has interrupted. No step writes a knob whose value is right, and none resets a device that is
// in the mode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "common/text/words.h"
#include "vfio/confidential/fsp.h"
#include "vfio/confidential/mode_knobs.h"
#include "vfio/pci/pci_address.h"
#include "vfio/registers/chip.h"
#include "vfio/registers/registers.h"

namespace ferry::vfio {

/// A device that a change writes to, as it was before.
struct RecordedDevice {
  PciAddress address;
  std::string ids = {};  ///< "10de:2330": another board at the address has others
  WantedMode wanted = WantedMode::off;
  std::string mode = {};              ///< the word of its mode register (RegisterFacts::mode)
  std::string reset_methods = {};     ///< ModeBoard::reset_methods()
  std::vector<KnobValue> knobs = {};  ///< those that its firmware knows and the change concerns
  bool operator==(const RecordedDevice&) const = default;
};

/// The devices of a change. Every one of them is held, so that no VM can open it meanwhile.
class ModeBoard : Pinned {
 public:
  virtual ~ModeBoard() = default;

  virtual PollClock& clock() = 0;
  /// Makes the registers of a device readable and returns them; they stay so until the next call for it.
  /// std::errc::resource_unavailable_try_again: not yet, as while it boots.
  virtual Result<Registers*> reach(const PciAddress& device) = 0;
  /// Absent: not known before its registers are read, as of an NVSwitch.
  virtual std::optional<Chip> chip(const PciAddress& device) = 0;
  virtual std::string ids(const PciAddress& device) = 0;
  /// Errors: the kernel knows no way to reset it.
  virtual Result<> expect_reset(const PciAddress& device) = 0;
  /// The kernel's methods to reset a device, in the order in which it tries them: "flr bus". Empty: it does
  /// not tell them.
  virtual std::string reset_methods(const PciAddress& device) = 0;
  virtual Result<> set_reset_methods(const PciAddress& device, const std::string& methods) = 0;
  virtual Result<> reset(const PciAddress& device) = 0;
  /// Makes these the recorded devices among those of this board, durably.
  virtual Result<> record(const std::vector<RecordedDevice>& devices) = 0;
};

enum class ModeResult : std::uint8_t {
  unchanged,  ///< it was in the mode
  changed,    ///< its register shows the mode
  kept,       ///< another device or this one could not be changed: it is as before
  unknown,    ///< it could not be brought back: its next reset, as at a VM's start, may give it another mode
};
inline constexpr Words<ModeResult, 4> kModeResults = {{{"unchanged", ModeResult::unchanged},
                                                       {"changed", ModeResult::changed},
                                                       {"kept", ModeResult::kept},
                                                       {"unknown", ModeResult::unknown}}};
constexpr const auto& words_of(ModeResult /*result*/) {
  return kModeResults;
}

struct DeviceOutcome {
  PciAddress address;
  std::string before = {};  ///< its mode; empty: it was not read
  std::string after = {};   ///< its mode now; empty: not known
  ModeResult result = ModeResult::kept;
  std::string problem = {};  ///< why it has not the mode; empty: it has it, or only others failed
};

struct ModeOutcome {
  std::vector<DeviceOutcome> devices = {};
  std::string problem = {};  ///< why nothing was changed, or all was undone; empty: all have the mode
  bool refused = false;      ///< nothing was written: a device is in use, or is not on vfio-pci
};

/// Gives every device the mode. Never fails: the outcome says what failed.
ModeOutcome change_modes(ModeBoard& board, const std::vector<PciAddress>& addresses, WantedMode mode);

/// Undoes an interrupted change of devices of the board. A change that had come to its end on each of them is
/// kept. Devices that are `unknown` afterwards stay recorded.
ModeOutcome undo_mode_change(ModeBoard& board, const std::vector<RecordedDevice>& recorded);

}  // namespace ferry::vfio
