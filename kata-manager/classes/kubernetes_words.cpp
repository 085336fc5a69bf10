// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/kubernetes_words.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "common/text/text.h"
#include "common/text/words.h"
#include "kata-manager/runtimes/container_runtime.h"

namespace ferry::kata {
namespace {

constexpr std::size_t kLongestName = 253;
constexpr std::size_t kLongestLabel = 63;

// A suffix's factor: decimal suffixes are powers of ten, binary ones of 1024.
std::optional<long double> suffix_factor(std::string_view suffix) {
  constexpr Words<long double, 16> kFactors = {{{"", 1.0L},
                                                {"n", 1e-9L},
                                                {"u", 1e-6L},
                                                {"m", 1e-3L},
                                                {"k", 1e3L},
                                                {"M", 1e6L},
                                                {"G", 1e9L},
                                                {"T", 1e12L},
                                                {"P", 1e15L},
                                                {"E", 1e18L},
                                                {"Ki", 0x1p10L},
                                                {"Mi", 0x1p20L},
                                                {"Gi", 0x1p30L},
                                                {"Ti", 0x1p40L},
                                                {"Pi", 0x1p50L},
                                                {"Ei", 0x1p60L}}};
  if (const auto factor = value_for(kFactors, suffix)) return factor;
  if (suffix.size() < 2 || (suffix.front() != 'e' && suffix.front() != 'E')) return std::nullopt;
  const auto exponent = whole_number<int>(suffix.substr(1));
  constexpr int kMost = 30;
  if (!exponent || std::abs(*exponent) > kMost) return std::nullopt;
  return std::pow(10.0L, *exponent);
}

}  // namespace

bool is_object_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName &&
         std::ranges::all_of(std::views::split(text, '.'), [](const auto& label) {
           return is_handler_name({label.begin(), label.end()});
         });
}

bool is_label_value(std::string_view text) {
  if (text.empty()) return true;
  if (text.size() > kLongestLabel || !is_alphanumeric(text.front()) || !is_alphanumeric(text.back()))
    return false;
  return std::ranges::all_of(text,
                             [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_label_key(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return !text.empty() && is_label_value(text);
  const std::string_view name = text.substr(slash + 1);
  return is_object_name(text.substr(0, slash)) && !name.empty() && is_label_value(name);
}

std::optional<std::uint64_t> parse_quantity(std::string_view text) {
  const auto digits_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits_end);
  const bool needless_zero = number.size() > 1 && number.front() == '0' && number[1] != '.';
  if (number.empty() || needless_zero || number.front() == '.' || number.back() == '.') return std::nullopt;
  const auto value = whole_number<long double>(number);
  const auto factor = suffix_factor(text.substr(digits_end));
  if (!value || !factor) return std::nullopt;
  const long double whole = std::ceil(*value * *factor);
  if (whole > 0x1p63L) return std::nullopt;
  return static_cast<std::uint64_t>(whole);
}

}  // namespace ferry::kata
