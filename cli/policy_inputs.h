// SPDX-License-Identifier: Apache-2.0
// What the verbs for a whole node begin with: the policy of a file, and the host to hold it against.
#pragma once

#include "cli/session.h"
#include "cli/verbs.h"
#include "common/result.h"
#include "host/node_apply.h"
#include "policy/policy.h"

namespace ferry {

Result<Policy> chosen_policy(const ProfileOptions& options);
/// All of its file; what was let pass is said on stderr.
Result<PolicyFile> policies_of(const ProfileOptions& options);

/// The names of this host's models, as `status` shows them. `session` must outlive it.
ModelNames model_names(const Session& session);

/// The session's own.
NodeProbes node_probes(const Session& session);

/// The host, where these are asked who holds what. Errors: the host has no identity to make UUIDs from.
Result<NodeHost> node_host(const Session& session, const NodeProbes& uses);

}  // namespace ferry
