// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/classes/runtime_handler.h"

#include <algorithm>

namespace ferry::kata {

bool is_configuration_of_ferry(const std::filesystem::path& path) {
  const auto inside = path.lexically_normal().lexically_relative(kKataConfigurations);
  return !inside.empty() && inside != "." && *inside.begin() != "..";
}

bool is_handler_name(std::string_view name) {
  constexpr std::size_t kLongest = 63;
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > kLongest) return false;
  if (!is_plain(name.front()) || !is_plain(name.back())) return false;
  return std::ranges::all_of(name, [&](char c) { return is_plain(c) || c == '-'; });
}

}  // namespace ferry::kata
