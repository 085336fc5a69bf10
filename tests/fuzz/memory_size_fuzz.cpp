// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/plan/choose.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto size = vgpu::parse_memory_mib(text);
  if (!size) return require(size.error().code == Errc::usage, "a refusal is wrong usage");
  require(*size > 0, "no amount is none");
  require(text.find_first_of("0123456789") == 0, "an amount begins with a digit");
  const auto same = vgpu::parse_memory_mib(std::to_string(*size) + "MiB");
  require(same && *same == *size, "an amount in MiB is itself");
}
