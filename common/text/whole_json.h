// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace ferry {

/// Bounds of a document that one program of Ferry writes for another one.
struct JsonBounds {
  std::size_t bytes = std::size_t{2} * 1024 * 1024;
  std::size_t levels = 32;       ///< of lists and objects in each other
  std::size_t values = 100'000;  ///< a value takes up to 160 bytes, and some processes have 64 MiB
};

/// Why the text is beyond the bounds: "nested deeper than 32 levels". Empty: it is within them. The text is
/// only counted, before a tree of it takes memory.
std::string beyond(std::string_view json, const JsonBounds& bounds = {});

/// Parses a document of Ferry or its programs within the default bounds, whose numbers are all whole. A
/// number that is not, or that is beyond 64 bits and so a float to the library, is an error, since its
/// conversion to int is undefined.
///
/// Throws json::exception for such a number, for text beyond the bounds, and for text that is no JSON;
/// callers turn it into an Error.
nlohmann::json parse_whole_json(std::string_view text);

/// Parses a document from the network. Discarded (`is_discarded()`): no JSON, or nested deeper than 100
/// levels, which the library would print and compare by recursion.
nlohmann::json parse_answer_json(std::string_view text);

}  // namespace ferry
