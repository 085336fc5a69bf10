// SPDX-License-Identifier: Apache-2.0
// What the cluster shall see of a node: labels and an annotation, from what it shall be and what its host
// says. Pure; time is handed in.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/change_budget.h"
#include "agent/node_wish.h"
#include "agent/operands.h"
#include "agent/seen_host.h"
#include "agent/wish_file.h"
#include "kata-manager/ready_handlers.h"
#include "kata-manager/wanted_classes.h"

namespace ferry {

/// What the agent knows of the host it is on.
struct HostSide {
  std::optional<WrittenWish> written;  ///< wanted.json as it is; absent: none, or not the agent's
  std::optional<SeenHost> seen;        ///< state.json; absent: none, or not readable
  std::string unreadable;              ///< why it cannot be read; empty: there is none, or it can
  std::string unwritable = {};         ///< why wanted.json could not be written or removed; empty: it could
  /// The generation of which wanted.json says the same in other words: what hostd has made of that one it has
  /// made of this one. Absent: of none.
  std::optional<std::uint64_t> same_as = {};
  HandlersFile kata = {};                          ///< kata.json: what hostd says of Kata's handlers
  std::optional<WantedClasses> kata_written = {};  ///< kata-classes.json; absent: none, or not readable
  std::chrono::seconds kata_silent{0};             ///< for how long neither of the two has changed
  /// For how long the kubelet has not listed the same ones of the handlers that are ready; 0: it lists them.
  std::chrono::seconds kata_unlisted{0};
  /// For how long neither wanted.json nor state.json has changed.
  std::chrono::seconds silent{0};
  /// For how long hostd has not run, as far as the agent has seen it; 0 also while it runs.
  std::chrono::seconds hostd_down{0};
  /// How often it has ended, as far as the agent has seen it, since `written` was and before it was done
  /// with.
  int ends = 0;
  /// It has said of `written` that it failed. Its own tries since are no reason to send anybody away: who is
  /// in their way it names.
  bool has_failed = false;
  /// It runs, and has said `seen` since it came. False at once: whoever acts on a word of hostd's that
  /// somebody else pays for asks this, not hostd_is_gone().
  bool hostd_speaks = true;
};

/// A value of the label gpu-ferry.io/state.
enum class NodeCondition {
  as_wanted,
  pending,  ///< asked for; hostd has not answered yet
  withdrawing,
  changing,
  draining,  ///< in use, by pods that are evicted
  refused,   ///< in use; done without being asked again once it is let go
  failed,
  nothing_wanted,
  stood_back,
  unknown,  ///< hostd had taken it up, and is gone
};
std::string_view text(NodeCondition condition);

struct NodeReport {
  NodeCondition condition = NodeCondition::nothing_wanted;
  bool held = false;    ///< pending, until a person does something about what `trouble` says
  std::string trouble;  ///< what is wrong, in one line of at most kMostTold bytes; empty: nothing
  LabelChanges labels;  ///< what they shall be; labels that are not in it are not ours to say
  LabelChanges annotations;
};

/// What is said of pods that hold the GPUs (drain.h).
struct DrainReport {
  bool draining = false;
  std::string note = {};  ///< why pods are not evicted, or not yet; empty: there is no reason to name
};

/// What an annotation of ours, and an event's message, is cut to.
inline constexpr std::size_t kMostTold = 1024;

/// Answers that take longer are no answers: hostd says within moments what it will do, and a change of a node
/// is a matter of minutes.
inline constexpr std::chrono::seconds kAnswerPatience{30};
inline constexpr std::chrono::seconds kChangePatience{900};

/// One that ends so often in the middle of a change will not carry it out, though it is started anew each
/// time.
inline constexpr int kMostEnds = 3;

/// So long what hostd said last stands while it does not run: over an update and a reboot, and between the
/// tries to start one that does not stay up, which are five minutes apart in a pod.
inline constexpr std::chrono::seconds kGonePatience{600};

/// Whether what hostd has said is no longer known to be so.
bool hostd_is_gone(const HostSide& host);

/// Whether hostd has taken up wanted.json as it is.
bool has_answered(const HostSide& host);

/// Whether what hostd says is about the wish.
bool is_taken_up(const NodeWish& wish, const HostSide& host);

/// Whether hostd has made of the host what the wish says, although it was told in other words: by another
/// name, by another label, in a configuration that has changed elsewhere.
bool is_done_already(const NodeWish& wish, const HostSide& host);

/// Whether nobody shall wait for the host's answer to what is written any more.
bool waits_in_vain(const HostSide& host);

/// Whether that is so of the answer to this wish.
bool is_silent(const NodeWish& wish, const HostSide& host);

/// `held`: why what is asked for is not begun until a person does something; empty: nothing keeps it.
NodeReport node_report(const NodeWish& wish, const HostSide& host, const std::string& held = {},
                       const DrainReport& drain = {});

/// The annotation says this as well. It is nothing of the host's, so `trouble` does not.
void add_to_error(NodeReport& report, const std::string& text);

bool host_is_changing(const HostSide& host);

/// What has come of wanted.json, for those who wait until it is done: silence of more than kChangePatience is
/// a failure too, as are kMostEnds of hostd's. A failure of which a hostd has spoken that runs no more is
/// none until that time is up.
ChangeOutcome change_outcome(const HostSide& host);
/// Whether that is a failure of which hostd has spoken.
bool says_that_it_failed(const HostSide& host);
/// Why that is a failure, in a line that others can be shown.
std::string failure_of(const HostSide& host);

/// What hostd complains of: the error of the whole, then each accelerator that is not as it shall be, as in
/// "0000:02:00.0 (NVIDIA L40S): in use; held by vm guest-7 (pid 4711); stop the VM". Holders whom the reason
/// names are not named twice.
std::vector<std::string> host_troubles(const SeenHost& host);

/// One line of at most `most` bytes: line breaks become blanks, the end of a longer one "…".
std::string told(std::string_view text, std::size_t most = kMostTold);

}  // namespace ferry
