// SPDX-License-Identifier: Apache-2.0
// A snapshot of the node for the verbs that show it.
#pragma once

#include "cli/output/explanation.h"
#include "cli/session.h"
#include "host/node_description.h"

namespace ferry::cli {

enum class Depth {
  rows,  ///< the facts of a row of `status`, with the accelerators' driver_override
  all,   ///< also driver_override of companion functions, and each accelerator's own facts; reading these
         ///< wakes one that sleeps
};

/// Reads everything that is known of the node now. Facts that cannot be read beside the scan become notes.
/// Errors: the host itself cannot be scanned.
Result<host::NodeSnapshot> snapshot_node(const Session& session, Depth depth);

/// Describes `snapshot` with the names of this host's models.
host::NodeDescription describe_node(const Session& session, const host::NodeSnapshot& snapshot);

/// Reads the input of an explanation.
Result<ExplainInputs> read_explain_inputs(const Session& session);

}  // namespace ferry::cli
