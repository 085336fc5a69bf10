// SPDX-License-Identifier: Apache-2.0
#include "host/usage/use_probes.h"
#include "tests/fuzz/fuzz.h"

// A GPU's information file, and the list of drivers' numbers.
void ferry::fuzz::one_input(std::string_view text) {
  require(!host::device_minor(text) || text.find("Device Minor:") != std::string_view::npos,
          "a minor stands behind its key");
  require(!host::character_major(text, "nvidia-nvswitch") ||
              text.find("nvidia-nvswitch") != std::string_view::npos,
          "a number stands before its driver");
}
