// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/offered_file.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  for (const Holding& one : allocated_by(text)) require(one.ids.size() == 1, "each device stands alone");
  kata_resources_of(text);
  unfit_by(text);
  const auto errors = fatal_errors_of(text);
  require(fatal_errors_of(offered_json({}, {}, {}, 0, errors)) == errors, "what is handed on stays");
}
