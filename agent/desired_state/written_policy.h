// SPDX-License-Identifier: Apache-2.0
// The policy in the desired.json that the agent has written (api/desired_state.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/desired_state/desired_state.h"
#include "api/desired_state.h"
#include "common/config/config_tree.h"
#include "common/result.h"
#include "policy/policy.h"

namespace ferry::agent {

/// Absent: not written by the agent. A person's file may lack the generation or the source, or have the path
/// of a policy instead of its text.
std::optional<api::DesiredFile> read_written(std::string text);

/// The file that the agent writes for `desired_policy`.
api::DesiredFile file_of(const DesiredPolicy& desired_policy, std::uint64_t generation);

/// True if the file has the content of `desired_policy`. Only the policy counts in a configuration's text, so
/// that an edit of another policy changes nothing.
bool says(const api::DesiredFile& file, const DesiredPolicy& desired_policy);
/// The policy in the file; absent: it cannot be read any more.
std::optional<policy::Policy> policy_in(const api::DesiredFile& file);
/// True if the file's policy has the same content, whatever its name.
bool holds(const api::DesiredFile& file, const policy::Policy& policy);

// A cache of the policies in a text. Each reconcile needs the same few texts, and parsing their YAML was its
// most expensive part. The cache changes no result, and each thread has its own.

/// Drops the texts, such as old versions, that were not needed since the last call. The agent's loop calls
/// this before each reconcile.
void drop_unused_policies();

/// The cached result of read_policies().
std::shared_ptr<const Result<policy::PolicyFile>> known_policies(const ConfigText& source);

}  // namespace ferry::agent
