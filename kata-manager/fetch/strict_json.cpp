// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/strict_json.h"

#include <set>
#include <vector>

#include <nlohmann/json.hpp>

namespace ferry::kata {
namespace {

using nlohmann::json;

// No document read here is deeper; a deeper one is an attack.
constexpr int kDeepest = 64;

class Keys {
 public:
  // The parser's callback; returns true to keep the value.
  bool seen(int depth, json::parse_event_t event, const json& value) {
    too_deep |= depth > kDeepest;
    if (event == json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == json::parse_event_t::object_end && !open_.empty()) {
      open_.pop_back();
    } else if (event == json::parse_event_t::key && !open_.empty()) {
      const auto& key = value.get_ref<const std::string&>();
      if (!open_.back().insert(key).second && twice.empty()) twice = "'" + key + "'";
    }
    return !too_deep;
  }

  std::string twice;
  bool too_deep = false;

 private:
  std::vector<std::set<std::string>> open_;
};

}  // namespace

Result<json> parse_strict_json(std::string_view text, const std::string& what, Errc code) {
  Keys keys;
  try {
    json parsed = json::parse(text, [&](int depth, json::parse_event_t event, const json& value) {
      return keys.seen(depth, event, value);
    });
    if (keys.too_deep) return fail(code, what + ": it is nested too deeply");
    if (!keys.twice.empty()) return fail(code, what + ": the key " + keys.twice + " is there twice");
    return parsed;
    // The library's message is left out: it quotes the text read last, perhaps a password.
  } catch (const json::parse_error& error) {
    return fail(code, what + ": parse error at byte " + std::to_string(error.byte) + ": it is no JSON");
  } catch (const json::exception&) {
    return fail(code, what + ": it cannot be read as JSON");
  }
}

}  // namespace ferry::kata
