// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ferry::fuzz::one_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
