// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/pci/pci_function.h"

// First a function's modalias, which says its IDs too, then a modules.alias file, which is a
// modules.builtin.modinfo file too.
void ferry::fuzz::one_input(std::string_view text) {
  const auto [modalias, table] = first_line(text);
  constexpr std::string_view kOne = "pci:v000010DEd00002684sv000010DEsd0000167Cbc03sc00i00";
  require(!vfio::parse_pci_modalias(modalias) || modalias.size() == kOne.size(), "each field has its width");
  const vfio::VfioDriver chosen = vfio::VfioDriverTable::parse(table).choose(modalias);
  require(!chosen.module.empty() && !chosen.driver.empty(), "there is always a driver");
  require(chosen.module == "vfio_pci" || table.find(" " + chosen.module) != std::string_view::npos,
          "a module comes from the table");
  vfio::VfioDriverTable builtin;
  builtin.add_builtin(table);
  const vfio::VfioDriver named = builtin.choose(modalias);
  require(named.module == "vfio_pci" || table.find(named.module + ".alias=") != std::string_view::npos,
          "a module that is built in comes from the table");
}
