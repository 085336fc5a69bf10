// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `ferry-agent retire`, which the chart runs before `helm uninstall` removes the agents' rights
/// (retirement.h). Exit status: 0 the agents have ended; 1 and 2 as everywhere.
int retire_program(int argc, char** argv);

}  // namespace ferry
