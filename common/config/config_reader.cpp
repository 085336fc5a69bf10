// SPDX-License-Identifier: Apache-2.0
#include "common/config/config_reader.h"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"

namespace ferry {
namespace {

using Kind = ConfigNode::Kind;

// Whole numbers as Go's YAML reader takes them: 010 and 0o10 (8), 0x10, 0b11, 1_000, +4, 4.0, 4e0.
std::optional<std::int64_t> read_odd_integer(const ConfigNode& node) {
  if (node.kind != Kind::scalar || node.is_string()) return std::nullopt;
  std::string text = node.text;
  std::erase(text, '_');
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  constexpr std::array<std::pair<std::string_view, int>, 5> kBases = {
      {{"0x", 16}, {"0b", 2}, {"0o", 8}, {"0", 8}, {"", 10}}};
  const auto* const known = std::ranges::find_if(
      kBases, [&](const auto& one) { return text.size() > one.first.size() && text.starts_with(one.first); });
  if (known == kBases.end()) return std::nullopt;  // there is no digit
  const auto digits = std::string_view(text).substr(known->first.size());
  if (const auto value = whole_number<std::int64_t>(digits, known->second))
    return negative ? -*value : *value;

  constexpr double kLargest = 1e15;  // whole numbers up to this are exact
  const auto real = whole_number<double>(text);
  if (!real || !(std::abs(*real) <= kLargest) || *real != std::trunc(*real)) return std::nullopt;
  return static_cast<std::int64_t>(negative ? -*real : *real);
}

}  // namespace

std::optional<std::int64_t> plain_number(const ConfigNode& node) {
  if (node.kind != Kind::scalar || node.quoted) return std::nullopt;
  const std::string_view text = node.text;
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || (digits.size() > 1 && digits.front() == '0')) return std::nullopt;
  return whole_number<std::int64_t>(text);
}

bool ConfigReader::let_pass(const ConfigNode& at, const std::string& key, const std::string& what) const {
  if (tolerated_ != nullptr) tolerated_->push_back(fmt::format("{}: {}: {}", place(at), key, what));
  return tolerated_ != nullptr;
}

std::optional<std::int64_t> ConfigReader::read_number(const ConfigNode& node, const std::string& key) const {
  if (const auto number = plain_number(node)) return number;
  const auto odd = read_odd_integer(node);
  if (odd && let_pass(node, key, fmt::format("{} is taken for {}", node.text, *odd))) return odd;
  return std::nullopt;
}

tl::unexpected<Error> ConfigReader::refuse(const ConfigNode& at, const std::string& key,
                                           const std::string& what, std::string hint) const {
  const std::string where = key.empty() ? place(at) : place(at) + ": " + key;
  return fail(Errc::invalid_config, where + ": " + what, std::move(hint));
}

tl::unexpected<Error> ConfigReader::refuse(const ConfigNode& at, const std::string& key, Error error) const {
  return refuse(at, key, error.message, std::move(error.hint));
}

Result<> ConfigReader::check_keys(const ConfigNode& map, const std::string& path,
                                  const std::vector<std::string>& known) const {
  for (const ConfigMember& member : map.members) {
    const std::string& key = member.key.text;
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return refuse(member.key, path.empty() ? key : fmt::format("{}.{}", path, key),
                  "unknown key" + did_you_mean(key, known),
                  fmt::format("known here: {}", fmt::join(known, ", ")));
  }
  return {};
}

Result<bool> ConfigReader::read_flag(const ConfigNode& node, const std::string& key) const {
  if (node.kind == Kind::scalar && !node.quoted && (node.text == "true" || node.text == "false"))
    return node.text == "true";
  return refuse(node, key, fmt::format("expected true or false, found {}", node.described()));
}

}  // namespace ferry
