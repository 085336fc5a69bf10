// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "mdev/vendor_vfio.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto types = mdev::parse_creatable_types(text);
  for (const mdev::VgpuType& type : types) {
    require(!type.id.empty() && type.id.front() != '0', "an id is a number above 0");
    require(type.id.find_first_not_of("0123456789") == std::string::npos, "an id is decimal");
    require(!type.name.empty() && type.name.front() != ' ' && type.name.back() != ' ', "a name is trimmed");
    require(type.name.find('\n') == std::string::npos, "a name is of one line");
    require(std::ranges::count(types, type.id, &mdev::VgpuType::id) == 1, "an id stands once");
    require(text.find(type.name) != std::string_view::npos, "no name is made up");
  }
}
