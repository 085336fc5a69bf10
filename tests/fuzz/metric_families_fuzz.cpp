// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/metric_families.h"
#include "tests/fuzz/fuzz.h"

// Makes metrics of each advertised.json that can be read.
void ferry::fuzz::one_input(std::string_view text) {
  auto advertised = api::read_advertised_resources(text);
  if (!advertised) return;
  agent::MetricsSnapshot snapshot;
  snapshot.host.content.emplace();
  snapshot.advertised.content = std::move(*advertised);
  const std::string shown = agent::metrics_text(agent::metric_families(snapshot));
  for (std::size_t begin = 0; begin < shown.size();) {
    const auto end = shown.find('\n', begin);
    require(end != std::string::npos, "the last line ends");
    const auto line = std::string_view(shown).substr(begin, end - begin);
    require(line.starts_with("ferry_") || line.starts_with("# "),
            "each line is a sample of ours or a comment");
    begin = end + 1;
  }
}
