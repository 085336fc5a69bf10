// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/naming.h"

#include <utility>

#include <fmt/format.h>

namespace ferry {

std::string fill_template(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : values) {
    const std::string field = "{" + key + "}";
    for (auto at = text.find(field); at != std::string::npos; at = text.find(field, at + value.size()))
      text.replace(at, field.size(), value);
  }
  return text;
}

Result<std::pair<std::string, std::string>> parse_alias(std::string_view text) {
  const auto sign = text.find('=');
  if (sign == std::string_view::npos || sign == 0 || sign + 1 == text.size()) {
    return fail(Errc::usage, fmt::format("alias '{}': not of the form MODEL=NAME", text),
                "as 10de:2330=h100 or 'NVIDIA A40-8Q=small'");
  }
  return std::pair(std::string(text.substr(0, sign)), std::string(text.substr(sign + 1)));
}

}  // namespace ferry
