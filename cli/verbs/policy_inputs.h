// SPDX-License-Identifier: Apache-2.0
// The inputs of the verbs for a whole node: a file's policies, and the host to compare them with.
#pragma once

#include "cli/session.h"
#include "cli/verbs/verbs.h"
#include "common/result.h"
#include "host/node_apply.h"
#include "policy/policy.h"

namespace ferry::cli {

Result<policy::Policy> chosen_policy(const ProfileOptions& options);
/// All policies of the file. Their warnings go to stderr.
Result<policy::PolicyFile> policies_of(const ProfileOptions& options);

/// The names of this host's models, as `status` shows them. `session` must outlive them.
policy::ModelNames model_names(const Session& session);

/// Verbs that change the node themselves need these: devices of ResourceClaims count as in use. hostd has
/// other probes.
host::NodeProbes node_probes(const Session& session);

/// The host; `uses` finds its device users. Errors: the host has no identity to make UUIDs from, or it is not
/// known which GPUs have ResourceClaims.
Result<host::NodeHost> node_host(const Session& session, const host::NodeProbes& uses);

/// The same for hostd's rounds and claims. If the claims are not known, NodeHost::dra is empty: hostd finds
/// the same error itself.
Result<host::NodeHost> hostd_host(const Session& session, const host::NodeProbes& uses);
/// hostd's probes, for which devices of ResourceClaims are not in use.
host::NodeProbes hostd_probes(const Session& session);

}  // namespace ferry::cli
