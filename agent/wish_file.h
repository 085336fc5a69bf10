// SPDX-License-Identifier: Apache-2.0
// /var/lib/ferry/wanted.json as the agent writes it: what this node shall be, for `ferry hostd` and for a
// start without an API server.
//
//   {"version": 1, "generation": 12, "policy": "NAME", "config": "the text that holds it",
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
  std::uint64_t generation = 0;  ///< higher with every change; state.json says which one it is about
  std::string policy;
  std::string config;
  std::string asked_by;
  bool operator==(const WrittenWish&) const = default;

  /// Whether it says what `wished` does: of a configuration's text only the policy counts, so that an edit of
  /// another one asks for nothing.
  bool says(const WishedPolicy& wished) const;
  /// The policy that it holds; absent: it cannot be read any more.
  std::optional<Policy> read() const;
  /// Whether the policy that it holds is that one, whatever it is called.
  bool holds(const Policy& other) const;
};

std::string wish_file_text(const WrittenWish& wish);

/// Absent: not of the agent's making. A person's file may say where a policy lies instead of what it says.
std::optional<WrittenWish> read_wish_file(std::string_view text);

}  // namespace ferry
