// SPDX-License-Identifier: Apache-2.0
// Who wrote which field of an object last, as server-side apply has it: leaves only, a list is one leaf.
#pragma once

#include <map>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

namespace ferry::test {

class FieldOwners {
 public:
  /// After `manager` has written: what it changed is its own, what went is nobody's.
  void updated(const std::string& path, const std::string& manager, const nlohmann::json& before,
               const nlohmann::json& after);
  /// The fields of `content` that others have with another value.
  std::set<std::string> conflicts(const std::string& path, const std::string& manager,
                                  const nlohmann::json& before, const nlohmann::json& content) const;
  /// The object after `manager` has applied `content` by force: what it applied before and no longer wants
  /// goes, unless it is another's too.
  nlohmann::json applied(const std::string& path, const std::string& manager, nlohmann::json before,
                         const nlohmann::json& content);
  void forget(const std::string& path) { owners_.erase(path); }
  /// For metadata.managedFields: the managers alone.
  nlohmann::json managed_fields(const std::string& path) const;

 private:
  using Fields = std::set<std::string>;                          // JSON pointers
  std::map<std::string, std::map<std::string, Fields>> owners_;  // by path, by manager
};

}  // namespace ferry::test
