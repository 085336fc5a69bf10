// SPDX-License-Identifier: Apache-2.0
// Pauses the gpu-operator's pods that watch the devices to change, or have GPUs open that change their
// driver. The labels that deploy these pods on the node carry the pause, as for the operator's own
// components. Pure.
//
// | the label says             | paused                     | resumed                  |
// | true                       | paused-for-gpu-ferry       | true                     |
// | V                          | V_paused-for-gpu-ferry     | V                        |
// | false, nothing, no label   | as it is                   | as it is                 |
// | another program's pause    | as it is                   | as it is                 |
// | Ferry's and another's      | as it is                   | the other's alone        |
//
// The mark is the only memory, so that an agent resumes the operands after a crash.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::agent {

using Labels = std::map<std::string, std::string>;

/// New values of labels or annotations; absent: removed. Others stay.
using LabelChanges = std::map<std::string, std::optional<std::string>>;

/// Empty: there is no such label or annotation.
std::string value_of(const Labels& labels, const std::string& key);
/// True if `labels` has all of a nodeSelector, with the same values.
bool has_all(const Labels& labels, const Labels& selector);
/// The labels after `changes`.
Labels with_changes(Labels labels, const LabelChanges& changes);

inline constexpr std::string_view kPauseMark = "paused-for-gpu-ferry";

/// Time limit for operands to pause, for their pods to end, and for the Node to accept labels. Then a change
/// goes on without them.
inline constexpr std::chrono::seconds kPausePatience{120};

/// The changes that pause the operands. sandbox-device-plugin, kata-sandbox-device-plugin and
/// sandbox-validator watch the devices of VMs. device-plugin, gpu-feature-discovery, dcgm, dcgm-exporter (and
/// their DRA variants) and mig-manager have each GPU of driver nvidia open. Empty: all are paused. A value
/// that would be too long for a label stays.
LabelChanges pause_operands(const Labels& labels);

/// The labels of operands on the node that pause_operands() leaves, since their values would be too long.
std::vector<std::string> operands_that_stay(const Labels& labels);

/// The changes that remove Ferry's mark from these labels.
LabelChanges resume_operands(const Labels& labels);

/// The DaemonSets whose pods end once the operands are paused.
std::set<std::string> paused_daemon_sets(const Labels& labels);

/// True if the DaemonSet is of an operand that Ferry has paused, or that pause_operands() would pause.
bool can_be_paused(const Labels& labels, std::string_view daemon_set);

/// True for the DaemonSet of an operand that pause_operands() may pause.
bool is_an_operand(std::string_view daemon_set);

/// The value without Ferry's pause; other values are returned unchanged.
std::string resumed_value(std::string_view value);

/// True if the value pauses an operand, no matter which program set it.
bool is_paused(std::string_view value);

}  // namespace ferry::agent
