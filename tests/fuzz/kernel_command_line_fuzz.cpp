// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vfio/pci/kernel_options.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto line = vfio::KernelCommandLine::parse(text);
  for (const vfio::KernelParameter& parameter : line.parameters()) {
    require(parameter.name.find('-') == std::string::npos, "a name has no dash");
    require(text.find(parameter.text) != std::string_view::npos, "a parameter stands in the text");
    require(line.last(parameter.name) != nullptr, "what is listed is found");
  }
}
