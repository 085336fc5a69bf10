// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace ferry::cli {

/// Execs the program of this name in this program's folder: `ferry-agent` and `ferry-dra`, which talk to an
/// API server (docs/adr/0015). Returns only if exec fails.
Error become_program(const std::string& name, std::vector<std::string> arguments);

}  // namespace ferry::cli
