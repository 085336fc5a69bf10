// SPDX-License-Identifier: Apache-2.0
// One look at the node for the verbs that show it.
#pragma once

#include "cli/session.h"
#include "cli/story.h"
#include "host/node_view.h"

namespace ferry {

enum class Depth {
  rows,  ///< what a row of `status` shows, driver_override of the accelerators included
  all,   ///< also driver_override of their companions, and what each accelerator tells of itself, which wakes
         ///< one that sleeps
};

/// Everything that is known of the node now. What cannot be had beside the scan is said in the notes. Errors:
/// the host itself cannot be scanned.
Result<NodeSight> look_at_node(const Session& session, Depth depth);

/// With the names of this host's models.
NodePicture view_of(const Session& session, const NodeSight& sight);

/// All that stories are told from.
Result<StoryInputs> look_for_stories(const Session& session);

}  // namespace ferry
