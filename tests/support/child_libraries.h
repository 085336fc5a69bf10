// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "hostfs/host_writer.h"

namespace ferry::test {

/// The libraries of a test executable that is its own host writer's child. A test adds its own before main().
inline std::vector<HostLibrary>& child_libraries() {
  static std::vector<HostLibrary> libraries;
  return libraries;
}

}  // namespace ferry::test
