// SPDX-License-Identifier: Apache-2.0
// Parts of JSON objects from outside, which may have any shape. A part that is absent or of another kind
// reads as null, empty or false.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace ferry {

const nlohmann::json& field(const nlohmann::json& object, std::string_view key);
/// field() of each key in turn.
const nlohmann::json& field_at(const nlohmann::json& object, std::initializer_list<std::string_view> keys);
/// A string as one line that a terminal can show (visible_text.h).
std::string text_field(const nlohmann::json& object, std::string_view key);
bool flag_field(const nlohmann::json& object, std::string_view key);
/// The values that are strings.
std::map<std::string, std::string> texts_field(const nlohmann::json& object, std::string_view key);
/// The keys that exist, with everything below them.
nlohmann::json only_keys(const nlohmann::json& object, std::initializer_list<std::string_view> keys);
/// `taken` of each item of a list; empty: it is no list.
nlohmann::json each_item(const nlohmann::json& object, std::string_view key,
                         const std::function<nlohmann::json(const nlohmann::json&)>& taken);
/// Empty: it is no list.
const std::vector<nlohmann::json>& items_field(const nlohmann::json& object, std::string_view key);

}  // namespace ferry
