// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "api/own_cdi_files.h"
#include "tests/fuzz/fuzz.h"

// Any program of the host that is root may have changed Ferry's CDI files.
void ferry::fuzz::one_input(std::string_view text) {
  const auto checked = api::check_own_cdi_file({.file = "f", .text = std::string(text)});
  require(checked || checked.error().message.starts_with("f:"), "a fault says where");
}
