// SPDX-License-Identifier: Apache-2.0
// Real hosts, as their kernels showed themselves: tests/fixtures/hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hostfs/host_fs.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// One of them, on disk. The format is in the first lines of each file.
class CapturedHost : public HostFs {
 public:
  explicit CapturedHost(const std::string& name);

 private:
  CapturedHost(const std::string& name, std::unique_ptr<ScratchDirectory> directory);

  std::unique_ptr<ScratchDirectory> directory_;
};

/// The names of all.
std::vector<std::string> captured_hosts();

}  // namespace ferry::test
