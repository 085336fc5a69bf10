// SPDX-License-Identifier: Apache-2.0
#include "tests/support/field_owners.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ferry::test {
namespace {

using nlohmann::json;

// Whose object it is, and what the server writes.
constexpr std::array<std::string_view, 7> kNobodys = {"/apiVersion",
                                                      "/kind",
                                                      "/metadata/name",
                                                      "/metadata/namespace",
                                                      "/metadata/uid",
                                                      "/metadata/resourceVersion",
                                                      "/metadata/managedFields"};

void collect(const json& value, const json::json_pointer& here, std::map<std::string, json>& leaves) {
  const auto text = here.to_string();
  if (std::ranges::find(kNobodys, text) != kNobodys.end()) return;
  if (!value.is_object()) {
    leaves.emplace(text, value);
    return;
  }
  for (const auto& [key, inner] : value.items()) collect(inner, here / key, leaves);
}

std::map<std::string, json> leaves_of(const json& object) {
  std::map<std::string, json> leaves;
  if (object.is_object()) collect(object, json::json_pointer(), leaves);
  return leaves;
}

void erase_leaf(json& object, const std::string& leaf) {
  const json::json_pointer pointer(leaf);
  if (object.contains(pointer)) object[pointer.parent_pointer()].erase(pointer.back());
}

}  // namespace

void FieldOwners::updated(const std::string& path, const std::string& manager, const json& before,
                          const json& after) {
  auto& owners = owners_[path];
  const auto old_leaves = leaves_of(before);
  const auto leaves = leaves_of(after);
  for (const auto& [leaf, value] : old_leaves)
    if (!leaves.contains(leaf))
      for (auto& [owner, fields] : owners) fields.erase(leaf);
  for (const auto& [leaf, value] : leaves) {
    const auto old = old_leaves.find(leaf);
    if (old != old_leaves.end() && old->second == value) continue;
    for (auto& [owner, fields] : owners) fields.erase(leaf);
    owners[manager].insert(leaf);
  }
}

std::set<std::string> FieldOwners::conflicts(const std::string& path, const std::string& manager,
                                             const json& before, const json& content) const {
  std::set<std::string> found;
  const auto owners = owners_.find(path);
  if (owners == owners_.end()) return found;
  const auto old_leaves = leaves_of(before);
  for (const auto& [leaf, value] : leaves_of(content)) {
    const auto old = old_leaves.find(leaf);
    if (old == old_leaves.end() || old->second == value) continue;
    for (const auto& [owner, fields] : owners->second)
      if (owner != manager && fields.contains(leaf)) found.insert(leaf);
  }
  return found;
}

json FieldOwners::applied(const std::string& path, const std::string& manager, json before,
                          const json& content) {
  for (const auto& leaf : conflicts(path, manager, before, content))
    for (auto& [owner, fields] : owners_[path]) fields.erase(leaf);
  auto& owners = owners_[path];
  Fields desired;
  for (const auto& [leaf, value] : leaves_of(content)) desired.insert(leaf);
  const auto had = std::exchange(owners[manager], desired);
  for (const auto& leaf : had) {
    if (desired.contains(leaf)) continue;
    bool anothers = false;
    for (const auto& [owner, fields] : owners) anothers = anothers || fields.contains(leaf);
    if (!anothers) erase_leaf(before, leaf);
  }
  if (!before.is_object()) before = json::object();
  before.merge_patch(content);
  return before;
}

json FieldOwners::managed_fields(const std::string& path) const {
  auto managers = json::array();
  if (const auto owners = owners_.find(path); owners != owners_.end())
    for (const auto& [owner, fields] : owners->second)
      if (!fields.empty()) managers.push_back({{"manager", owner}});
  return managers;
}

}  // namespace ferry::test
