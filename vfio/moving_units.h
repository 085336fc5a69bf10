// SPDX-License-Identifier: Apache-2.0
// Inside this room: units between their first plan and their results.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "vfio/move_apply.h"

namespace ferry {

MoveResult result_of(MoveResult::Status status, Move move);
MoveResult refused(Refusal refusal);
MoveResult failed(Move move, Error error);

struct MovingUnits {
  std::vector<Move> moves;          ///< units that are still to change
  std::vector<MoveResult> results;  ///< results of all other units

  /// Calls f for each unit of `moves`; a unit for which f returns a result leaves `moves`.
  template <typename F>
  void each(const F& f) {
    std::vector<Move> left;
    for (Move& move : moves) {
      if (std::optional<MoveResult> result = f(move)) {
        results.push_back(std::move(*result));
      } else {
        left.push_back(std::move(move));
      }
    }
    moves = std::move(left);
  }

  /// The accelerators of the units in `moves`.
  std::vector<PciAddress> devices() const;
};

}  // namespace ferry
