// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace ferry {

/// Environment variables by name.
using Environment = std::map<std::string, std::string>;

/// The environment of this process now.
Environment process_environment();

/// Empty: the variable is not set.
std::string value_of(const Environment& environment, const char* name);

}  // namespace ferry
