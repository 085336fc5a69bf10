// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/strict_json.h"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

namespace ferry::kata {

using nlohmann::json;

Result<json> parse_strict_json(std::string_view text, const std::string& what, Errc code) {
  constexpr int kDeepest = 64;              // no document read here is deeper; a deeper one is an attack
  std::vector<std::set<std::string>> open;  // the keys of each object around the place
  std::string twice;
  bool too_deep = false;
  const auto is_kept = [&](int depth, json::parse_event_t event, const json& value) {
    too_deep |= depth > kDeepest;
    if (event == json::parse_event_t::object_start) {
      open.emplace_back();
    } else if (event == json::parse_event_t::object_end && !open.empty()) {
      open.pop_back();
    } else if (event == json::parse_event_t::key && !open.empty()) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open.back().insert(key).second && twice.empty()) twice = "'" + key + "'";
    }
    return !too_deep;
  };
  try {
    json parsed = json::parse(text, is_kept);
    if (too_deep) return fail(code, what + ": it is nested too deeply");
    if (!twice.empty()) return fail(code, what + ": the key " + twice + " is there twice");
    return parsed;
    // The library's message is left out: it quotes the text read last, perhaps a password.
  } catch (const json::parse_error& error) {
    return fail(code, what + ": parse error at byte " + std::to_string(error.byte) + ": it is no JSON");
  } catch (const json::exception&) {
    return fail(code, what + ": it cannot be read as JSON");
  }
}

}  // namespace ferry::kata
