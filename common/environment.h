// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace ferry {

/// The variables of a process.
using Environment = std::map<std::string, std::string>;

/// Those of this process, as they are now.
Environment process_environment();

/// Empty where it is not set.
std::string value_of(const Environment& environment, const char* name);

}  // namespace ferry
