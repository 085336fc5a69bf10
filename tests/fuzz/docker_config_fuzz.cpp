// SPDX-License-Identifier: Apache-2.0
// The first line is a registry, the rest credentials.
#include "kata-manager/artifacts/skopeo.h"
#include "tests/fuzz/fuzz.h"

void ferry::fuzz::one_input(std::string_view text) {
  const auto [registry, config] = first_line(text);
  const auto parsed = kata::DockerConfig::parse(config);
  if (!parsed) return require(!parsed.error().message.empty(), "a refusal says why");
  (void)parsed->credentials(registry, "a/b/c");
  if (config.empty()) require(parsed->credentials(registry, "a").empty(), "nothing has no credentials");
}
