// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/feature_labels.h"
#include "agent/node_report.h"
#include "agent/seen_host.h"
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/profile/label_name.h"

// What hostd writes into state.json, and what a cluster would be told of it.
void ferry::fuzz::one_input(std::string_view text) {
  auto seen = read_seen_host(text);
  if (!seen) {
    require(seen.error().code == Errc::malformed_host, "a refusal is of the host");
    return require(seen.error().message.starts_with("/run/ferry/state.json: "), "a refusal says where");
  }
  const auto labels = feature_labels(*seen).value_or(Labels());
  for (const auto& [key, value] : labels) {
    require(can_be_label(key.substr(key.find('/') + 1)), "a label's key");
    require(can_be_label(value), "a label's value");
  }
  NodeWish wish;
  wish.kind = NodeWish::Kind::policy;
  HostSide host;
  host.written = WrittenWish{};
  host.seen = std::move(*seen);
  for (const auto generation : {host.seen->wanted, std::optional<std::uint64_t>(0)}) {
    host.seen->wanted = generation;
    const NodeReport report = node_report(wish, host);
    require(report.trouble.size() <= kMostTold, "an annotation ends");
    require(report.trouble.find('\n') == std::string::npos, "and is a line");
  }
}
