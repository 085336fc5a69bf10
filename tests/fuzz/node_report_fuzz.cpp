// SPDX-License-Identifier: Apache-2.0
#include "agent/labels/feature_labels.h"
#include "agent/node_report.h"
#include "api/host_status.h"
#include "tests/fuzz/fuzz.h"
#include "vgpu-dm/profile/profile.h"

// Makes the agent's report of each status.json that can be read.
void ferry::fuzz::one_input(std::string_view text) {
  auto status = api::read_host_status(text);
  if (!status) return;
  const auto labels = agent::feature_labels(*status).value_or(agent::Labels());
  for (const auto& [key, value] : labels) {
    require(vgpu::can_be_label(key.substr(key.find('/') + 1)), "a label's key");
    require(vgpu::can_be_label(value), "a label's value");
  }
  agent::DesiredState desired_state;
  desired_state.kind = agent::DesiredState::Kind::policy;
  agent::HostSide host;
  host.written = api::DesiredFile{.generation = 0, .policy = {}};
  host.status = std::move(*status);
  for (const auto generation : {host.status->desired_generation(), std::optional<std::uint64_t>(0)}) {
    host.status->desired = api::DesiredMark{.generation = generation};
    const agent::NodeReport report = agent::node_report(desired_state, host);
    require(report.trouble.size() <= agent::kMostReported, "an annotation ends");
    require(report.trouble.find('\n') == std::string::npos, "and is a line");
  }
}
