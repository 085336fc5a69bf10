// SPDX-License-Identifier: Apache-2.0
// Applies the plan of one unit: record, write, verify, and roll back if a step fails. Several units may
// change side by side, each in a thread of its own.
#pragma once

#include "common/result.h"
#include "vfio/inventory.h"
#include "vfio/move_apply.h"
#include "vfio/move_plan.h"

namespace ferry {

/// Reports one step to `context.on_step` and writes it. The error code is the kernel's errno. Errc::stuck
/// also for a module whose earlier load has not returned, without another try. Steps of services are skipped.
Result<> perform(const MoveContext& context, const Step& step);

/// The result of a unit's change.
struct Carried {
  Result<> done;
  /// A write of the change or of its roll back has not returned. Whatever the error says, nothing more may be
  /// written to the unit.
  bool hangs = false;
};

/// Applies `move`, planned from `before`. After an error of a bind, the writes are rolled back as far as the
/// error says. An unbind tries the steps of every function, and a function that the host's driver does not
/// take stays on vfio. Errc::stuck: nothing more is written to this unit, not even a roll back.
/// Sets `driver_after` of each member whose driver the kernel chose.
Carried carry_out(const MoveContext& context, const Inventory& before, Move& move, Direction direction);

}  // namespace ferry
