// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/feature_labels.h"
#include "agent/node_report.h"
#include "agent/seen_host.h"
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/profile/label_name.h"

// What hostd writes into state.json, and what a cluster would be told of it.
void ferry::fuzz::one_input(std::string_view text) {
  auto seen = agent::read_seen_host(text);
  if (!seen) {
    require(seen.error().code == Errc::malformed_host, "a refusal is of the host");
    return require(seen.error().message.starts_with("/run/ferry/state.json: "), "a refusal says where");
  }
  const auto labels = agent::feature_labels(*seen).value_or(agent::Labels());
  for (const auto& [key, value] : labels) {
    require(vgpu::can_be_label(key.substr(key.find('/') + 1)), "a label's key");
    require(vgpu::can_be_label(value), "a label's value");
  }
  agent::NodeWish wish;
  wish.kind = agent::NodeWish::Kind::policy;
  agent::HostSide host;
  host.written = agent::WrittenWish{};
  host.seen = std::move(*seen);
  for (const auto generation : {host.seen->wanted, std::optional<std::uint64_t>(0)}) {
    host.seen->wanted = generation;
    const agent::NodeReport report = agent::node_report(wish, host);
    require(report.trouble.size() <= agent::kMostTold, "an annotation ends");
    require(report.trouble.find('\n') == std::string::npos, "and is a line");
  }
}
