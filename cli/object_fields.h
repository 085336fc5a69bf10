// SPDX-License-Identifier: Apache-2.0
// Inside this room: parts of objects that may be anything. Null, empty or nothing stands for what is not
// there or of another kind.
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
/// field() of field() ...
const nlohmann::json& field_at(const nlohmann::json& object, std::initializer_list<std::string_view> keys);
/// A line that a terminal can show (visible_text.h).
std::string text_field(const nlohmann::json& object, std::string_view key);
bool flag_field(const nlohmann::json& object, std::string_view key);
/// Those of its values that are strings.
std::map<std::string, std::string> texts_field(const nlohmann::json& object, std::string_view key);
/// The keys that are there, with all below them.
nlohmann::json only_keys(const nlohmann::json& object, std::initializer_list<std::string_view> keys);
/// `taken` of each item of a list; empty where it is none.
nlohmann::json each_item(const nlohmann::json& object, std::string_view key,
                         const std::function<nlohmann::json(const nlohmann::json&)>& taken);
/// Empty where it is no list.
const std::vector<nlohmann::json>& items_field(const nlohmann::json& object, std::string_view key);

}  // namespace ferry
