// SPDX-License-Identifier: Apache-2.0
// What the cluster shall see of a node: labels and an annotation, from what it shall be and what its host
// says. Pure; time is handed in.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/node_wish.h"
#include "agent/operands.h"
#include "agent/seen_host.h"
#include "agent/wish_file.h"

namespace ferry {

/// What the agent knows of the host it is on.
struct HostSide {
  std::optional<WrittenWish> written;  ///< wanted.json as it is; absent: none, or not the agent's
  std::optional<SeenHost> seen;        ///< state.json; absent: none, or not readable
  std::string unreadable;              ///< why it cannot be read; empty: there is none, or it can
  /// For how long neither wanted.json nor state.json has changed.
  std::chrono::seconds silent{0};
};

/// A value of the label gpu-ferry.io/state.
enum class NodeCondition {
  as_wanted,
  pending,  ///< asked for; hostd has not answered yet
  withdrawing,
  changing,
  refused,  ///< in use; done without being asked again once it is let go
  failed,
  nothing_wanted,
  stood_back,
};
std::string_view text(NodeCondition condition);

struct NodeReport {
  NodeCondition condition = NodeCondition::nothing_wanted;
  std::string trouble;  ///< what is wrong, in one line of at most kMostTold bytes; empty: nothing
  LabelChanges labels;  ///< what they shall be; labels that are not in it are not ours to say
  LabelChanges annotations;
};

/// What an annotation of ours, and an event's message, is cut to.
inline constexpr std::size_t kMostTold = 1024;

/// Answers that take longer are no answers: hostd says within moments what it will do, and a change of a node
/// is a matter of minutes.
inline constexpr std::chrono::seconds kAnswerPatience{30};
inline constexpr std::chrono::seconds kChangePatience{900};

/// Whether hostd has taken up wanted.json as it is.
bool has_answered(const HostSide& host);

/// Whether what hostd says is about the wish.
bool is_taken_up(const NodeWish& wish, const HostSide& host);

/// Whether hostd has made of the host what the wish says, although it was told in other words: by another
/// name, by another label, in a configuration that has changed elsewhere.
bool is_done_already(const NodeWish& wish, const HostSide& host);

/// Whether the host has been silent for too long, so that nobody shall wait for it.
bool is_silent(const NodeWish& wish, const HostSide& host);

NodeReport node_report(const NodeWish& wish, const HostSide& host);

/// What hostd complains of: the error of the whole, then each accelerator that is not as it shall be, as in
/// "0000:02:00.0 (NVIDIA L40S): in use; held by vm guest-7 (pid 4711); stop the VM".
std::vector<std::string> host_troubles(const SeenHost& host);

/// One line of at most `most` bytes: line breaks become blanks, the end of a longer one "…".
std::string told(std::string_view text, std::size_t most = kMostTold);

}  // namespace ferry
