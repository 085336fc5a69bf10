// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/kata-manager/archives.h"

namespace ferry::test {

struct HostileArchive {
  std::vector<TarEntry> entries;
  std::string why;  ///< in the words of who refuses it
};

/// Archives that lead out of the folder that they are unpacked into (to a file `outside` beside it), or make
/// there what no artifact needs.
const std::vector<HostileArchive>& hostile_archives();

}  // namespace ferry::test
