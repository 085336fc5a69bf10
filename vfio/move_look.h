// SPDX-License-Identifier: Apache-2.0
// Inside this room: what a move is planned from, looked at together, and the plan made of it.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "vfio/driver_choice.h"
#include "vfio/inventory.h"
#include "vfio/move_apply.h"
#include "vfio/move_record.h"

namespace ferry {

struct MoveLook {
  Inventory inventory;
  VfioDriverTable drivers;
  MoveRecord record;
  UseReport use;
  std::set<std::string> stuck;  ///< addresses that a write in the kernel still holds
  /// Members that are cut into mediated devices: each of those is held through a group of its own, which
  /// nobody asked about.
  std::map<PciAddress, std::size_t> mediated;

  /// What could not be asked, void records; on the way to vfio, drivers that may be overlooked.
  std::vector<std::string> notes(Direction direction) const;
};

/// `accelerators` that are gone are passed over. Errors: the host cannot be scanned, the records cannot be
/// listed, nobody could be asked who uses the devices.
Result<MoveLook> look(const MoveContext& context, const std::vector<PciAddress>& accelerators,
                      const std::set<PciAddress>& with);

MovePlan plan(const MoveContext& context, const MoveLook& seen, const MoveRequest& request,
              Direction direction);

/// What the first look leaves of a request.
struct FirstLook {
  MoveLook seen;
  MoveRequest request;               ///< of what is there
  std::vector<PciAddress> vanished;  ///< since they were chosen: each a failure of its own
};

/// What is asked for by name must be there, and all must be possible on this host. Errors as preview_moves().
Result<FirstLook> look_at_all(const MoveContext& context, const MoveRequest& request, Direction direction);

/// Errc::not_found: "there is no PCI function 0000:17:00.0 any more"
Error gone(const PciAddress& device);

}  // namespace ferry
