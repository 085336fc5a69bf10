// SPDX-License-Identifier: Apache-2.0
// Every test executable can be its own host writer, as `ferry` is.
#include <string_view>

#include <gmock/gmock.h>

#include "common/host_writer.h"

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == ferry::kHostActVerb) return ferry::host_act_main(argc, argv);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
