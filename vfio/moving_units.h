// SPDX-License-Identifier: Apache-2.0
// Inside this room: the units on their way from the first plan to their results.
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
  std::vector<Move> moves;          ///< still to move
  std::vector<MoveResult> results;  ///< of those that are not

  /// Calls f for each unit that is still to move; one that it gives a result for is no longer.
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

  /// The accelerators of those that are still to move.
  std::vector<PciAddress> devices() const;
};

}  // namespace ferry
