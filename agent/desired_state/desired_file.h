// SPDX-License-Identifier: Apache-2.0
// /var/lib/ferry/desired.json, which the agent writes: the node's desired state, for `ferry hostd` and for a
// start without an API server.
//
//   {"version": 2, "generation": 12, "policy": "NAME", "config": "the text that contains it",
//    "source": "label gpu-ferry.io/policy=NAME"}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/desired_state/desired_state.h"

namespace ferry::agent {

/// Relative to the host's root.
inline constexpr const char* kDesiredFile = "var/lib/ferry/desired.json";

struct DesiredFile {
  std::uint64_t generation = 0;  ///< higher with each change; status.json names the one it is about
  std::string policy;
  std::string config;
  std::string source;
  bool operator==(const DesiredFile&) const = default;

  /// True if the file has the content of `desired_policy`. Only the policy counts in a configuration's text,
  /// so that an edit of another policy changes nothing.
  bool says(const DesiredPolicy& desired_policy) const;
  /// The policy in the file; absent: it cannot be read any more.
  std::optional<policy::Policy> read() const;
  /// True if the file's policy has the same content, whatever its name.
  bool holds(const policy::Policy& other) const;
};

std::string desired_file_text(const DesiredFile& desired_state);

/// Absent: not written by the agent. A person's file may have the path of a policy instead of its text.
std::optional<DesiredFile> read_desired_file(std::string_view text);

}  // namespace ferry::agent
