// SPDX-License-Identifier: Apache-2.0
#include "agent/kata_labels.h"

#include <algorithm>
#include <string_view>

#include "agent/cluster_words.h"

namespace ferry {
namespace {

constexpr std::string_view kReady = "ready";

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Empty: the handler's name makes no valid label.
std::string label_of(const std::string& handler) {
  constexpr std::size_t kLongestName = 63;  // Kubernetes' limit for a label's name after its prefix
  const std::string label = kKataPrefix + handler;
  const std::string_view name = std::string_view(label).substr(label.find('/') + 1);
  const bool legal = !handler.empty() && name.size() <= kLongestName && is_alphanumeric(handler.back()) &&
                     std::ranges::all_of(handler, [](char c) {
                       return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
                     });
  return legal ? label : std::string();
}

}  // namespace

LabelChanges kata_labels(const Labels& labels, const std::set<std::string>& ready) {
  LabelChanges out;
  for (const auto& [label, value] : labels)
    if (label.starts_with(kKataPrefix)) out[label] = std::nullopt;
  for (const std::string& handler : ready)
    if (const auto label = label_of(handler); !label.empty()) out[label] = std::string(kReady);
  return out;
}

}  // namespace ferry
