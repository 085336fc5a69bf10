// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry {

/// `k8s-kata-manager` of NVIDIA's Kata manager, with its flags and environment. It installs the classes of
/// its file, writes its pid file, and waits for SIGTERM or another signal that ends it. The runtimes stay
/// installed. Exit status 0, and 1 for any error.
int k8s_kata_manager(int argc, char** argv);

}  // namespace ferry
