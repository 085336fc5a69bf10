// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/naming.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/suggest.h"

namespace ferry::plugin {

std::string fill_template(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : values) {
    const std::string field = "{" + key + "}";
    for (auto at = text.find(field); at != std::string::npos; at = text.find(field, at + value.size()))
      text.replace(at, field.size(), value);
  }
  return text;
}

Result<> check_template(std::string_view text, std::span<const std::string_view> fields) {
  std::vector<std::string> known;
  for (const std::string_view field : fields) known.push_back(fmt::format("{{{}}}", field));
  const auto wrong = [&](std::string_view part) {
    return fail(Errc::usage,
                fmt::format("name template '{}': there is no {}{}", text, part,
                            did_you_mean(std::string(part), known)),
                fmt::format("a name is made of text and {}", fmt::join(known, ", ")));
  };
  for (auto at = text.find_first_of("{}"); at != std::string_view::npos;) {
    const auto end = text.find('}', at);
    const auto part = text.substr(at, end == std::string_view::npos ? end : end + 1 - at);
    if (std::ranges::find(known, part) == known.end()) return wrong(part);
    at = text.find_first_of("{}", at + part.size());
  }
  return {};
}

Result<std::pair<std::string, std::string>> parse_alias(std::string_view text) {
  const auto sign = text.find('=');
  if (sign == std::string_view::npos || sign == 0 || sign + 1 == text.size()) {
    return fail(Errc::usage, fmt::format("alias '{}': not of the form MODEL=NAME", text),
                "as 10de:2330=h100 or 'NVIDIA A40-8Q=small'");
  }
  return std::pair(std::string(text.substr(0, sign)), std::string(text.substr(sign + 1)));
}

}  // namespace ferry::plugin
