// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace ferry {

/// Becomes `ferry-agent`, which lies beside this program and alone speaks to an API server (docs/adr/0015),
/// with these arguments. It reads `input` on its standard input; empty: ours. Returns only where it cannot
/// be.
Error become_agent_program(std::vector<std::string> arguments, const std::string& input = {});

}  // namespace ferry
