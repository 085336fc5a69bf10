// SPDX-License-Identifier: Apache-2.0
// The fixture of the host writer's tests.
#pragma once

#include <gtest/gtest.h>

#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "tests/support/scratch_directory.h"

namespace ferry::test {

/// The real writer, with the real child: this executable itself (tests/support/test_main.cpp).
class HostWriterTest : public testing::Test {
 protected:
  ScratchDirectory tree_;
  HostFs host_{tree_.path()};
  SpawningWriter writer_{host_};
};

}  // namespace ferry::test
