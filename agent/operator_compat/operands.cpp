// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/operands.h"

#include <algorithm>
#include <array>

#include "api/labels.h"

namespace ferry::agent {
namespace {

struct Operand {
  std::string_view name;
  std::string_view daemon_set;
};
constexpr std::array kPaused = {
    Operand{.name = "sandbox-device-plugin", .daemon_set = "nvidia-sandbox-device-plugin-daemonset"},
    Operand{.name = "kata-sandbox-device-plugin",
            .daemon_set = "nvidia-kata-sandbox-device-plugin-daemonset"},
    Operand{.name = "sandbox-validator", .daemon_set = "nvidia-sandbox-validator"},
    Operand{.name = "device-plugin", .daemon_set = "nvidia-device-plugin-daemonset"},
    Operand{.name = "gpu-feature-discovery", .daemon_set = "gpu-feature-discovery"},
    Operand{.name = "dcgm", .daemon_set = "nvidia-dcgm"},
    Operand{.name = "dcgm-exporter", .daemon_set = "nvidia-dcgm-exporter"},
    Operand{.name = "dcgm-dra", .daemon_set = "nvidia-dcgm-dra"},
    Operand{.name = "dcgm-exporter-dra", .daemon_set = "nvidia-dcgm-exporter-dra"},
    Operand{.name = "mig-manager", .daemon_set = "nvidia-mig-manager"}};

/// Each component of the operator begins its pause mark with this.
constexpr std::string_view kAnyPause = "paused-for-";

constexpr std::size_t kLongestValue = 63;  // Kubernetes' limit for a label's value

std::string paused_value(std::string_view value) {
  if (value.empty() || value == "false" || is_paused(value)) return std::string(value);
  if (value == "true") return std::string(kPauseMark);
  if (value.size() + 1 + kPauseMark.size() > kLongestValue) return std::string(value);
  return std::string(value) + "_" + std::string(kPauseMark);
}

using Label = Labels::value_type;

/// Null: the node has no such label.
const Label* label_of(const Labels& labels, const Operand& operand) {
  const auto found = labels.find(api::kDeployPrefix + std::string(operand.name));
  return found == labels.end() ? nullptr : &*found;
}

bool has_our_mark(const Label& label) {
  return label.second.find(kPauseMark) != std::string::npos;
}

/// The labels of operands whose value `changed` changes.
template <typename Change>
LabelChanges changes_of(const Labels& labels, const Change& changed) {
  LabelChanges out;
  for (const Operand& operand : kPaused) {
    const Label* const label = label_of(labels, operand);
    if (label == nullptr) continue;
    if (std::string value = changed(label->second); value != label->second)
      out[label->first] = std::move(value);
  }
  return out;
}

}  // namespace

std::string value_of(const Labels& labels, const std::string& key) {
  const auto found = labels.find(key);
  return found == labels.end() ? std::string() : found->second;
}

bool has_all(const Labels& labels, const Labels& selector) {
  return std::ranges::all_of(selector, [&](const auto& asked) {
    const auto found = labels.find(asked.first);
    return found != labels.end() && found->second == asked.second;
  });
}

Labels with_changes(Labels labels, const LabelChanges& changes) {
  for (const auto& [key, value] : changes) {
    if (value)
      labels[key] = *value;
    else
      labels.erase(key);
  }
  return labels;
}

bool is_paused(std::string_view value) {
  return value.find(kAnyPause) != std::string_view::npos;
}

std::string resumed_value(std::string_view value) {
  const auto at = value.find(kPauseMark);
  if (at == std::string_view::npos) return std::string(value);
  std::string_view before = value.substr(0, at);
  std::string_view after = value.substr(at + kPauseMark.size());
  if (before.ends_with('_')) before.remove_suffix(1);
  if (after.starts_with('_')) after.remove_prefix(1);
  // Another program has paused it after Ferry: its own resume must restore the value from before both pauses.
  if (before.empty()) return std::string(after.empty() ? "true" : after);
  return after.empty() ? std::string(before) : std::string(before) + "_" + std::string(after);
}

LabelChanges pause_operands(const Labels& labels) {
  return changes_of(labels, paused_value);
}

std::vector<std::string> operands_that_stay(const Labels& labels) {
  std::vector<std::string> out;
  for (const Operand& operand : kPaused) {
    const Label* const label = label_of(labels, operand);
    if (label == nullptr || label->second.empty() || label->second == "false" || is_paused(label->second))
      continue;
    if (paused_value(label->second) == label->second) out.push_back(label->first);
  }
  return out;
}

LabelChanges resume_operands(const Labels& labels) {
  return changes_of(labels, resumed_value);
}

std::set<std::string> paused_daemon_sets(const Labels& labels) {
  std::set<std::string> out;
  for (const Operand& operand : kPaused) {
    const Label* const label = label_of(labels, operand);
    if (label != nullptr && has_our_mark(*label)) out.emplace(operand.daemon_set);
  }
  return out;
}

bool is_an_operand(std::string_view daemon_set) {
  return std::ranges::find(kPaused, daemon_set, &Operand::daemon_set) != kPaused.end();
}

bool can_be_paused(const Labels& labels, std::string_view daemon_set) {
  const Operand* const operand = std::ranges::find(kPaused, daemon_set, &Operand::daemon_set);
  if (operand == kPaused.end()) return false;
  const Label* const label = label_of(labels, *operand);
  return label != nullptr && (has_our_mark(*label) || paused_value(label->second) != label->second);
}

}  // namespace ferry::agent
