// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace ferry {

/// A document of ours or of our programs: all of its numbers are whole. One that is not, or that is beyond 64
/// bits and so no whole one to the library either, is an error of it: to ask such a one for an int is
/// undefined.
///
/// Throws json::exception for it and for what is no JSON; the callers turn that into an Error.
nlohmann::json parse_whole_json(std::string_view text);

/// A document that came over the network. Discarded (`is_discarded()`): it is no JSON, or it is nested deeper
/// than 100 levels, which the library would print and compare by recursion.
nlohmann::json parse_answer_json(std::string_view text);

}  // namespace ferry
