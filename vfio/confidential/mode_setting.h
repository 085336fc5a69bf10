// SPDX-License-Identifier: Apache-2.0
// Changes the confidential mode of this host's GPUs and NVSwitches, in a child of the host writer.
//
// The child holds the node of each device's IOMMU group for the whole change, so that no VM opens the group
// meanwhile. It does not open the device, which would reset it and make staged knobs take effect. It resets
// by the sysfs files `reset` and `reset_method`. The record of a change is in var/lib, since knobs outlive a
// boot.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/confidential/mode_change.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_address.h"

namespace ferry::vfio {

/// The record of a change, relative to the host's root. It is there only during a change, after a crash in
/// one, and while a device could not be brought back.
inline constexpr const char* kModeRecordFile = "var/lib/ferry-hostd/gpus/mode-change.json";

/// Its content.
struct ModeRecord {
  std::vector<RecordedDevice> devices = {};
  bool operator==(const ModeRecord&) const = default;
};
std::string mode_record_text(const ModeRecord& record);
/// Errc::malformed_host: no such record; the message has the place.
Result<ModeRecord> read_mode_record(std::string_view text);
/// The record of a host, without devices if there is no file.
Result<ModeRecord> mode_record_of(const HostFs& host);

/// True for a record with devices, and for one that cannot be read.
bool has_interrupted_mode_change(const HostFs& host);
/// Its devices that no other board has replaced; empty: there are none, or the record cannot be read.
std::vector<PciAddress> interrupted_mode_changes(const HostFs& host);
/// The devices of NVIDIA in `among` that no VM may get before the change has ended, with the reason as a
/// sentence without its full stop, for Observed::open_modes. A record that cannot be read may name them all.
std::map<PciAddress, std::string> open_modes(const HostFs& host, std::span<const PciAddress> among);
std::map<PciAddress, std::string> open_modes(const HostFs& host, const Inventory& inventory);

/// Gives every device the mode, or none. Refused, with nothing written: a device is not on vfio-pci, its
/// group is open, or an earlier change of it is recorded. If the child dies, the change is undone.
ModeOutcome set_modes(HostWriter& writer, const HostFs& host, std::span<const PciAddress> devices,
                      WantedMode mode);

/// Undoes the recorded changes. A device that cannot be held, or is gone, is `unknown` and stays recorded. An
/// entry of a board that another one has replaced is removed, with a warning in `problem`.
ModeOutcome undo_interrupted_mode_change(HostWriter& writer, const HostFs& host);

/// The child's side, a HostLibrary of this name. The request is a mode and a line for each address, or
/// "undo".
inline constexpr std::string_view kModeLibrary = "modes";
std::string answer_mode_call(const HostFs& host, std::string_view request);

}  // namespace ferry::vfio
