// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/types/type_names.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto name = vgpu::VgpuTypeName::parse(text);
  if (!name)
    return require(name.error().code == Errc::invalid_config, "a refusal is an invalid configuration");
  require(name->text() == text, "a name prints as it was written");
  require(text.starts_with(name->driver_short_name()), "the driver's name is the name or its beginning");
  require(name->is_mig_backed() || name->attribute.empty(), "attributes are of MIG-backed types");
}
