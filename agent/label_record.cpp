// SPDX-License-Identifier: Apache-2.0
#include "agent/label_record.h"

#include <nlohmann/json.hpp>

namespace ferry {

using nlohmann::json;

std::string label_record_text(const Labels& record) {
  return json(record).dump(-1, ' ', false, json::error_handler_t::replace);
}

Labels read_label_record(std::string_view annotation) {
  const json record = json::parse(annotation, nullptr, false);
  if (!record.is_object()) return {};
  Labels out;
  for (const auto& [key, value] : record.items()) {
    if (!value.is_string()) return {};
    out[key] = value.get<std::string>();
  }
  return out;
}

OwnLabels own_labels(const Labels& labels, Labels record, const Labels& wanted, const Labels& ours_by_name) {
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
    if (!wanted.contains(key) && labels.contains(key) && !is_others(key)) out.changes[key] = std::nullopt;
  for (const auto& [key, value] : wanted) {
    if (is_others(key)) continue;
    out.changes[key] = value;
    ours[key] = value;
  }
  if (!ours.empty()) out.record = label_record_text(ours);
  return out;
}

}  // namespace ferry
