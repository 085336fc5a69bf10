// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/agent_program.h"
#include "cli/verbs/verbs.h"

namespace ferry::cli {

ExitStatus dra_verb(const std::vector<std::string>& words) {
  return complain(become_program("ferry-dra", words));
}

}  // namespace ferry::cli
