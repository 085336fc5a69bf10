// SPDX-License-Identifier: Apache-2.0
// The inputs of the verbs for a whole node: a file's policies, and the host to compare them with.
#pragma once

#include "cli/session.h"
#include "cli/verbs.h"
#include "common/result.h"
#include "host/node_apply.h"
#include "policy/policy.h"

namespace ferry {

Result<Policy> chosen_policy(const ProfileOptions& options);
/// All policies of the file. Their warnings go to stderr.
Result<PolicyFile> policies_of(const ProfileOptions& options);

/// The names of this host's models, as `status` shows them. `session` must outlive them.
ModelNames model_names(const Session& session);

NodeProbes node_probes(const Session& session);

/// The host; `uses` finds its device users. Errors: the host has no identity to make UUIDs from.
Result<NodeHost> node_host(const Session& session, const NodeProbes& uses);

}  // namespace ferry
