// SPDX-License-Identifier: Apache-2.0
// The output about binding and unbinding.
#pragma once

#include <map>
#include <string>

#include "cli/session.h"
#include "cli/shown.h"
#include "vfio/move_apply.h"

namespace ferry {

/// `left_alone`: accelerators that --all or a filter left out, with the reason.
Shown show_moves(const Session& session, const MovePreview& preview,
                 const std::map<PciAddress, std::string>& left_alone, Direction direction);
Shown show_moves(const Session& session, const MoveOutcome& outcome,
                 const std::map<PciAddress, std::string>& left_alone, Direction direction);

}  // namespace ferry
