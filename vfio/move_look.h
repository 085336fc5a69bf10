// SPDX-License-Identifier: Apache-2.0
// Inside this room: the snapshot that a change is planned from, and the plan.
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
  std::set<std::string> stuck;  ///< addresses with a stuck write
  /// Members with mediated devices. A VM uses a mediated device through that device's own group, for which no
  /// probe was asked.
  std::map<PciAddress, std::size_t> mediated;

  /// Questions without an answer, void records; for a bind also variant drivers that may be missed.
  std::vector<std::string> notes(Direction direction) const;
};

/// Takes a snapshot; `accelerators` that are gone are skipped. Errors: the host cannot be scanned, the
/// records cannot be listed, or no probe for device users works.
Result<MoveLook> look(const MoveContext& context, const std::vector<PciAddress>& accelerators,
                      const std::set<PciAddress>& with);

MovePlan plan(const MoveContext& context, const MoveLook& seen, const MoveRequest& request,
              Direction direction);

/// The first snapshot, and the part of the request that is still there.
struct FirstLook {
  MoveLook seen;
  MoveRequest request;               ///< without the vanished accelerators
  std::vector<PciAddress> vanished;  ///< gone since they were chosen: each is a failure of its own
};

/// Takes the first snapshot, in which accelerators of `by_name` must exist. Errors as preview_moves().
Result<FirstLook> look_at_all(const MoveContext& context, const MoveRequest& request, Direction direction);

/// Errc::not_found: "there is no PCI function 0000:17:00.0 any more".
Error gone(const PciAddress& device);

}  // namespace ferry
