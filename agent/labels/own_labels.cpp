// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/own_labels.h"

#include <nlohmann/json.hpp>

#include "api/labels.h"
#include "common/text/whole_json.h"
#include "vgpu-dm/profile/profile.h"

namespace ferry::agent {

using nlohmann::json;

std::string label_record_text(const Labels& record) {
  return json(record).dump(-1, ' ', false, json::error_handler_t::replace);
}

Labels read_label_record(std::string_view annotation) {
  const json record = parse_answer_json(annotation);
  if (!record.is_object()) return {};
  Labels out;
  for (const auto& [key, value] : record.items()) {
    if (!value.is_string()) return {};
    out[key] = value.get<std::string>();
  }
  return out;
}

OwnLabels own_labels(const Labels& labels, Labels record, const Labels& desired, const Labels& ours_by_name) {
  record.insert(ours_by_name.begin(), ours_by_name.end());  // insert() keeps recorded values
  const auto is_others = [&](const std::string& key) {
    const auto now = labels.find(key);
    if (now == labels.end()) return false;
    const auto set = record.find(key);
    return set == record.end() || set->second != now->second;
  };
  OwnLabels out;
  Labels ours;
  for (const auto& [key, value] : record)
    if (!desired.contains(key) && labels.contains(key) && !is_others(key)) out.changes[key] = std::nullopt;
  for (const auto& [key, value] : desired) {
    if (is_others(key)) continue;
    out.changes[key] = value;
    ours[key] = value;
  }
  if (!ours.empty()) out.record = label_record_text(ours);
  return out;
}

LabelChanges kata_labels(const Labels& labels, const std::set<std::string>& ready) {
  LabelChanges out;
  for (const auto& [label, value] : labels)
    if (label.starts_with(api::kKataPrefix)) out[label] = std::nullopt;
  for (const std::string& handler : ready) {
    const std::string label = api::kKataPrefix + handler;
    const std::string_view name = std::string_view(label).substr(label.find('/') + 1);
    if (vgpu::can_be_label(name)) out[label] = "ready";
  }
  return out;
}

}  // namespace ferry::agent
