// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/advertised_file.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  for (const plugin::Holding& one : plugin::allocated_by(text))
    require(one.ids.size() == 1, "each device stands alone");
  plugin::kata_resources_of(text);
  plugin::unfit_by(text);
  const auto errors = plugin::fatal_errors_of(text);
  require(plugin::fatal_errors_of(plugin::advertised_json({}, {}, {}, 0, errors)) == errors,
          "what is handed on stays");
}
