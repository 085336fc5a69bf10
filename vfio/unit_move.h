// SPDX-License-Identifier: Apache-2.0
// One unit's move carried out: record, write, read back, and the way back when something fails. Several units
// may be moved side by side, each by a thread of its own.
#pragma once

#include "common/result.h"
#include "vfio/inventory.h"
#include "vfio/move_apply.h"
#include "vfio/move_plan.h"

namespace ferry {

/// One write, told to `context.on_step` first. The kernel's errno is the error's code; Errc::stuck also for a
/// module whose earlier load has not returned, without another try. Steps of services are passed over.
Result<> perform(const MoveContext& context, const Step& step);

/// How a move went.
struct Carried {
  Result<> done;
  /// A write has not returned, of the move or of the way back from what failed before: whatever the error
  /// says, nothing more may be written to the unit.
  bool hangs = false;
};

/// Does `move`, planned from `before`. On an error in the direction of vfio, what was written is taken back
/// as far as the error says; on the way back each step is tried, since every function given back is one less
/// in need, and one that the host's driver does not take stays on vfio. Errc::stuck: nothing more is written
/// to this unit, not even the way back.
/// `move` then says of each member that was left to the kernel what that has chosen.
Carried carry_out(const MoveContext& context, const Inventory& before, Move& move, Direction direction);

}  // namespace ferry
