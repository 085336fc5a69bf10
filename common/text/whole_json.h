// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace ferry {

/// Parses a document of Ferry or its programs, whose numbers are all whole. A number that is not, or that is
/// beyond 64 bits and so a float to the library, is an error, since its conversion to int is undefined.
///
/// Throws json::exception for such a number and for text that is no JSON; callers turn it into an Error.
nlohmann::json parse_whole_json(std::string_view text);

/// Parses a document from the network. Discarded (`is_discarded()`): no JSON, or nested deeper than 100
/// levels, which the library would print and compare by recursion.
nlohmann::json parse_answer_json(std::string_view text);

}  // namespace ferry
