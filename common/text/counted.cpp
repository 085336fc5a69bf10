// SPDX-License-Identifier: Apache-2.0
#include "common/text/counted.h"

namespace ferry {

std::string counted(std::size_t count, std::string_view one, std::string_view many) {
  std::string out = std::to_string(count) + " ";
  out += count == 1 || many.empty() ? one : many;
  if (count != 1 && many.empty()) out += "s";
  return out;
}

}  // namespace ferry
