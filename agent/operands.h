// SPDX-License-Identifier: Apache-2.0
// The gpu-operator's pods that look at what changes, or have GPUs open that shall leave their driver, are
// kept away meanwhile, by the labels that have them run on the node, as its own components do it. Pure.
//
// | the label says             | paused                     | resumed                  |
// | true                       | paused-for-gpu-ferry       | true                     |
// | V                          | V_paused-for-gpu-ferry     | V                        |
// | false, nothing, no label   | as it is                   | as it is                 |
// | another's pause            | as it is                   | as it is                 |
// | ours, with another's on it | as it is                   | the other's alone        |
//
// Nothing is remembered: the mark is the memory, so that whoever comes after a crash resumes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

using Labels = std::map<std::string, std::string>;

/// What shall become of labels or annotations; absent: it shall be gone. Others stay as they are.
using LabelChanges = std::map<std::string, std::optional<std::string>>;

/// What they will be then.
Labels with_changes(Labels labels, const LabelChanges& changes);

inline constexpr std::string_view kPauseMark = "paused-for-gpu-ferry";

/// What is to be done to have off the node: sandbox-device-plugin, kata-sandbox-device-plugin and
/// sandbox-validator, which look at what VMs are given; device-plugin, gpu-feature-discovery, dcgm,
/// dcgm-exporter (and their kind for DRA) and mig-manager, which have every GPU of driver nvidia open. Empty:
/// it is done. A value that would be too long for a label stays.
LabelChanges pause_operands(const Labels& labels);

/// The labels of those that pause_operands() leaves although they are on the node, since their values would
/// be too long.
std::vector<std::string> operands_that_stay(const Labels& labels);

/// What is to be done so that no label of these carries our mark.
LabelChanges resume_operands(const Labels& labels);

/// The DaemonSets whose pods go once the operands are paused.
std::set<std::string> paused_daemon_sets(const Labels& labels);

/// Whether its pods are an operand's that is paused, or that pause_operands() would pause.
bool can_be_paused(const Labels& labels, std::string_view daemon_set);

/// True for the name of an operand's DaemonSet that pause_operands() may pause.
bool is_an_operand(std::string_view daemon_set);

/// The value that a paused one gets back; others as they are.
std::string resumed_value(std::string_view value);

/// Whether a value keeps an operand off for a while, whoever set it.
bool is_paused(std::string_view value);

}  // namespace ferry
