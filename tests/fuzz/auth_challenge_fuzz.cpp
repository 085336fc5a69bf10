// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/fetch/http.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  for (const kata::AuthChallenge& challenge : kata::parse_auth_challenges(text)) {
    require(!challenge.scheme.empty(), "a challenge has a scheme");
    for (const auto& [name, value] : challenge.parameters) require(!name.empty(), "a parameter has a name");
  }
}
