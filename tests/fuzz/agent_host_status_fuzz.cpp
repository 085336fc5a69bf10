// SPDX-License-Identifier: Apache-2.0
#include "agent/host_status.h"
#include "agent/labels/feature_labels.h"
#include "agent/node_report.h"
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/profile/profile.h"

// Reads status.json, and makes the agent's report of each file that can be read.
void ferry::fuzz::one_input(std::string_view text) {
  auto seen = agent::read_host_status(text);
  if (!seen) {
    require(seen.error().code == Errc::malformed_host, "a refusal is of the host");
    return require(seen.error().message.starts_with("/run/ferry/status.json: "), "a refusal says where");
  }
  const auto labels = agent::feature_labels(*seen).value_or(agent::Labels());
  for (const auto& [key, value] : labels) {
    require(vgpu::can_be_label(key.substr(key.find('/') + 1)), "a label's key");
    require(vgpu::can_be_label(value), "a label's value");
  }
  agent::DesiredState desired_state;
  desired_state.kind = agent::DesiredState::Kind::policy;
  agent::HostSide host;
  host.written = agent::DesiredFile{};
  host.seen = std::move(*seen);
  for (const auto generation : {host.seen->desired, std::optional<std::uint64_t>(0)}) {
    host.seen->desired = generation;
    const agent::NodeReport report = agent::node_report(desired_state, host);
    require(report.trouble.size() <= agent::kMostTold, "an annotation ends");
    require(report.trouble.find('\n') == std::string::npos, "and is a line");
  }
}
