// SPDX-License-Identifier: Apache-2.0
// What each function had before Ferry moved it, in run/ferry/hostd/moves/<group>.json: written before the
// first write to a group, removed when its members are back. One that somebody else has put on vfio is
// recorded before its way back: killed halfway, it has no driver and nothing else to be known by. Void after
// a reboot (the kernel binds afresh), told by the boot id. A record in run/ferry/moves, where earlier
// versions had theirs, is not obeyed (common/earlier_record.h): its group counts as unreadable.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/pci_address.h"
#include "vfio/pci_function.h"

namespace ferry {

/// What one function had.
struct PriorState {
  std::string ids;  ///< "10de:2684", so that a record never speaks of another card at the same address
  std::optional<std::string> driver;           ///< absent: none was bound
  std::optional<std::string> driver_override;  ///< absent: unset
  std::string role;                            ///< "accelerator", "companion": information
  std::optional<std::string> module = {};      ///< that brought the driver; absent: built in, or not known
  /// It was on vfio before Ferry: `driver` is absent and the override the one found there. Whatever driver
  /// the kernel gives it is its own.
  bool kernels_choice = false;
  bool operator==(const PriorState&) const = default;
};

struct MoveRecord {
  std::map<PciAddress, PriorState> members;
  /// Those of them whose driver nobody here can load (find_lost_modules()): nothing that is recorded.
  std::set<PciAddress> lost = {};
  /// By group, the records of which nothing is known. Going on without one would lose a driver for good:
  /// nothing of such a group is moved.
  std::map<std::uint32_t, Error> unreadable = {};
  std::vector<std::string> notes;  ///< records passed over, and why (another boot, unreadable)
  /// The functions that it has besides accelerators: they went along with one.
  std::set<PciAddress> gone_along() const;
  /// Whether it has `function`, or may have had it where it is unreadable.
  bool speaks_of(const PciFunction& function) const;
};

/// All records of this boot, merged. Those of another boot are passed over and noted. Two speak of one
/// address when it was plugged again into another group: the one of the group that it is in now counts.
/// Errors: there are records, and they cannot be listed.
Result<MoveRecord> read_records(const HostFs& host);

/// Writes the record of `group`. What a record holds already for an address stays: the first look is the true
/// one. But what is recorded for one of `fresh` is overwritten: it shows no trace of Ferry any more, so
/// somebody has brought it back by other means, and what it has now is what it shall have again. A roll back
/// that was killed before its last write, the override of another driver, is such a trace.
Result<> write_record(HostFs& host, std::uint32_t group, const std::map<PciAddress, PriorState>& members,
                      const std::set<PciAddress>& fresh = {});

/// Takes addresses out of whatever records hold them; a file goes with its last one. One that is unreadable
/// stays as it is.
Result<> forget(HostFs& host, const std::vector<PciAddress>& addresses);

}  // namespace ferry
