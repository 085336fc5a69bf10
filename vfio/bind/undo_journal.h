// SPDX-License-Identifier: Apache-2.0
// The undo journal, run/ferry/hostd/moves/<group>.json: each function's driver and override before Ferry
// changed them. A record is written before the first write to its group, and removed when all members are
// back. A function that another program bound to vfio is recorded before its unbind, since a run killed
// halfway leaves no other trace. A record of another boot, by its boot id, is void.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_address.h"
#include "vfio/pci/pci_function.h"

namespace ferry::vfio {

/// A function's state before Ferry changed it.
struct PriorState {
  std::string ids;  ///< "10de:2684"; a record does not count for another card at the address
  std::optional<std::string> driver = {};      ///< absent: none was bound
  std::optional<std::string> driver_override;  ///< absent: unset
  std::string role;                            ///< "accelerator", "companion": for gone_along()
  std::optional<std::string> module = {};      ///< module of the driver; absent: built in, or unknown
  /// The function was on vfio before Ferry: `driver` is absent, and the override is the one found there. The
  /// kernel chooses the driver at its unbind.
  bool kernels_choice = false;
  bool operator==(const PriorState&) const = default;
};

struct UndoJournal {
  std::map<PciAddress, PriorState> members;
  /// Members whose driver cannot be loaded (find_lost_modules()); this is not stored in the record.
  std::set<PciAddress> lost = {};
  /// Groups whose record cannot be read, with the error. No member of such a group changes drivers, since its
  /// earlier driver would be lost for good.
  std::map<std::uint32_t, Error> unreadable = {};
  std::vector<std::string> notes;  ///< records that were skipped, with the reason (another boot, unreadable)
  /// The members that are no accelerators: Ferry changed their drivers along with one.
  std::set<PciAddress> gone_along() const;
  /// True if Ferry bound the function of these IDs to vfio. False for a function that was on vfio before
  /// Ferry's first write, and for one that no readable record has.
  bool has_bound(const PciAddress& address, std::string_view ids) const;
  /// True if the record has `function`, or may have it because its group is unreadable.
  bool speaks_of(const PciFunction& function) const;
};

/// Reads and merges all records of this boot; those of another boot are skipped and noted. If two list one
/// address, because the card was plugged into another group, the record of its present group counts. Errors:
/// there are records, and they cannot be listed.
Result<UndoJournal> read_undo_journal(const HostFs& host);

/// Writes the record of `group`. An entry that exists stays, since the first scan saw the original state. One
/// in `fresh` is replaced: another program has rebound that function, which shows no trace of Ferry. A roll
/// back without its last write, the override of another driver, is a trace. An entry without a driver gets
/// the one that its function has now, and keeps its override: the driver came after the record.
Result<> write_undo_journal(HostFs& host, std::uint32_t group,
                            const std::map<PciAddress, PriorState>& members,
                            const std::set<PciAddress>& fresh = {});

/// Removes addresses from all records, and a file with its last address. An unreadable record stays as it is.
Result<> erase_from_undo_journal(HostFs& host, const std::vector<PciAddress>& addresses);

// Functions that Ferry bound to vfio along with an accelerator that has gone since: an audio function, or a
// member that --with took along, of a GPU that was unplugged.

/// A function of each unit that `journal` has members of and that has no accelerator any more. The function
/// stands for its unit in RebindRequest::accelerators of an unbind with `recorded_only`. Left out are
/// accelerators' virtual functions, which are units of their own, and accelerators on request.
std::vector<PciAddress> unfinished(const Inventory& inventory, const AcceleratorRules& rules,
                                   const UndoJournal& journal);

}  // namespace ferry::vfio
