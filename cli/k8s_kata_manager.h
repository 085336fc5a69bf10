// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `k8s-kata-manager` of NVIDIA's Kata manager: by its flags and environment installs the classes of its
/// file, says so by its pid file, and waits for SIGTERM or its like. What it installed stays then. Exit
/// status 0, and 1 for everything else.
int k8s_kata_manager(int argc, char** argv);

}  // namespace ferry
