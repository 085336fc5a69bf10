// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/moving_units.h"

namespace ferry::vfio {

MoveResult refused(Refusal refusal) {
  MoveResult result;
  result.status = MoveResult::Status::refused;
  result.devices = refusal.devices;
  result.refusal = std::move(refusal);
  return result;
}

MoveResult result_of(MoveResult::Status status, Move move) {
  MoveResult result;
  result.status = status;
  result.devices = move.devices;
  result.move = std::move(move);
  return result;
}

MoveResult failed(Move move, Error error) {
  MoveResult result = result_of(MoveResult::Status::failed, std::move(move));
  result.error = std::move(error);
  return result;
}

std::vector<PciAddress> MovingUnits::devices() const {
  std::vector<PciAddress> out;
  for (const Move& move : moves) out.insert(out.end(), move.devices.begin(), move.devices.end());
  return out;
}

}  // namespace ferry::vfio
