// SPDX-License-Identifier: Apache-2.0
// /var/lib/ferry/wanted.json, which the agent writes: the node's desired state, for `ferry hostd` and for a
// start without an API server.
//
//   {"version": 1, "generation": 12, "policy": "NAME", "config": "the text that contains it",
//    "asked_by": "label gpu-ferry.io/policy=NAME"}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/node_wish.h"

namespace ferry {

/// Relative to the host's root.
inline constexpr const char* kWishFile = "var/lib/ferry/wanted.json";

struct WrittenWish {
  std::uint64_t generation = 0;  ///< higher with each change; state.json names the one it is about
  std::string policy;
  std::string config;
  std::string asked_by;
  bool operator==(const WrittenWish&) const = default;

  /// True if the file has the content of `wished`. Only the policy counts in a configuration's text, so that
  /// an edit of another policy changes nothing.
  bool says(const WishedPolicy& wished) const;
  /// The policy in the file; absent: it cannot be read any more.
  std::optional<Policy> read() const;
  /// True if the file's policy has the same content, whatever its name.
  bool holds(const Policy& other) const;
};

std::string wish_file_text(const WrittenWish& wish);

/// Absent: not written by the agent. A person's file may have the path of a policy instead of its text.
std::optional<WrittenWish> read_wish_file(std::string_view text);

}  // namespace ferry
