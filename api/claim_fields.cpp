// SPDX-License-Identifier: Apache-2.0
#include "api/claim_fields.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/text/text.h"

namespace ferry::api {
namespace {

constexpr std::size_t kLongestLabel = 63;
constexpr std::size_t kLongestName = 253;
constexpr std::size_t kLongestType = 64;
constexpr std::size_t kLongestAttributeName = 63 + 1 + 32;  // a domain and a name
constexpr std::size_t kUuid = 36;

bool is_label_char(char c) {
  return is_lower(c) || is_digit(c) || c == '-';
}

}  // namespace

bool is_label(std::string_view text) {
  return !text.empty() && text.size() <= kLongestLabel && text.front() != '-' && text.back() != '-' &&
         std::ranges::all_of(text, is_label_char);
}

bool is_object_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName || text.ends_with('.')) return false;
  return std::ranges::all_of(words_between(text, '.'), [](const std::string& part) {
    return !part.empty() && part.front() != '-' && part.back() != '-' &&
           std::ranges::all_of(part, is_label_char);
  });
}

bool is_type(std::string_view text) {
  return text.size() <= kLongestType && is_alphanumeric(text.front()) &&
         std::ranges::all_of(
             text, [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == ':'; });
}

bool is_uuid(std::string_view text) {
  constexpr std::array<std::size_t, 4> kDashes = {8, 13, 18, 23};
  if (text.size() != kUuid) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_dash = std::ranges::find(kDashes, i) != kDashes.end();
    const char c = text[i];
    if (is_dash ? c != '-' : !is_digit(c) && (c < 'a' || c > 'f')) return false;
  }
  return true;
}

bool is_request(std::string_view text) {
  const auto parts = words_between(text, '/');
  return !text.empty() && parts.size() <= 2 && !text.ends_with('/') && std::ranges::all_of(parts, is_label);
}

bool is_pool(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && !text.ends_with('/') &&
         std::ranges::all_of(words_between(text, '/'), is_object_name);
}

bool is_resource_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

bool is_attribute_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestAttributeName && std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

}  // namespace ferry::api
