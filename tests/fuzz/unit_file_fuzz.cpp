// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "common/text/text.h"
#include "kata-manager/runtimes/unit_file.h"
#include "tests/fuzz/fuzz.h"

// The runtime's unit says whether its restart ends pods.
void ferry::fuzz::one_input(std::string_view text) {
  const std::string unit(text);
  for (const char* const key : {"KillMode", "ExecStart"}) {
    const auto value = kata::UnitFile({unit}).value("Service", key);
    if (!value) continue;
    require(!value->empty() && trimmed(*value) == *value, "a value is a text without blanks around it");
    require(value->find('\n') == std::string::npos, "a value is one line");
  }
  const auto kill_mode = [&](const char* drop_in) {
    return kata::UnitFile({unit, drop_in}).value("Service", "KillMode");
  };
  require(kill_mode("[Service]\nKillMode=process\n") == "process", "a drop-in counts more");
  require(!kill_mode("[Service]\nKillMode=\n"), "an empty assignment takes back");
  require(kill_mode("KillMode=process\n") == kata::UnitFile({unit}).value("Service", "KillMode"),
          "a section ends with its file");
}
