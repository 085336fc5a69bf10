// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/profile/vgpu_params.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto params = vgpu::VgpuParams::parse(text);
  if (!params)
    return require(params.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
  const auto again = vgpu::VgpuParams::parse(params->text());
  require(again && *again == *params && again->text() == params->text(),
          "parameters read back as themselves");
}
