// SPDX-License-Identifier: Apache-2.0
#include "common/process/environment.h"

#include <string_view>
#include <unistd.h>

namespace ferry {

Environment process_environment() {
  Environment out;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto sign = text.find('=');
    if (sign != std::string_view::npos) out.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  return out;
}

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace ferry
