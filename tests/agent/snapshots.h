// SPDX-License-Identifier: Apache-2.0
// Nodes, configurations and answers of hostd as the tests of the agent need them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/reconcile.h"
#include "api/labels.h"

namespace ferry::test {

inline policy::NodeObject node_with(agent::Labels labels) {
  return {.file = "node.yaml", .name = "gpu-7", .labels = std::move(labels)};
}

inline constexpr const char* kProfiles =
    "version: v1\n"
    "vgpu-configs:\n"
    "  default: [{devices: all, vgpu-devices: {L40S-24Q: 2}}]\n"
    "  render-mix: [{devices: all, vgpu-devices: {L40S-12Q: 4}}]\n";
inline constexpr const char* kPolicies =
    "version: v2\n"
    "policies:\n"
    "  mixed:\n"
    "  - {devices: all, mode: passthrough}\n"
    "  - {devices: [0], mode: vgpu, vgpu-devices: {L40S-12Q: 4}}\n"
    "  quarters: [{devices: all, mode: vgpu, vgpu-devices: {L40S-12Q: 4}}]\n";

inline ConfigText config(std::string file, std::string text) {
  return {.file = std::move(file), .text = std::move(text)};
}
inline std::vector<ConfigText> usual_configs() {
  return {config("profiles.yaml", kProfiles), config("policies.yaml", kPolicies)};
}

inline api::AcceleratorStatus gpu(policy::Mode mode, std::optional<policy::Mode> desired,
                                  api::GpuState state = api::GpuState::ready) {
  api::AcceleratorStatus out;
  out.address = {.bus = 2};
  out.model = "NVIDIA L40S";
  out.mode = mode;
  out.desired = desired;
  out.state = state;
  constexpr std::size_t kVgpus = 4;
  if (mode == policy::Mode::vgpu) out.vgpus.assign(kVgpus, {.id = "0000:02:00.4", .type = "L40S-12Q"});
  return out;
}

/// What the node is asked to be, written down.
inline api::DesiredFile written(const agent::DesiredState& desired_state, std::uint64_t generation = 7) {
  return agent::file_of(desired_state.desired_policy, generation);
}

/// hostd's answer to that.
inline agent::HostSide answer(const agent::DesiredState& desired_state, api::NodePhase phase,
                              std::vector<api::AcceleratorStatus> gpus = {}) {
  agent::HostSide host;
  host.written = written(desired_state);
  api::HostStatus seen;
  seen.desired = api::DesiredMark{.generation = 7};
  seen.phase = phase;
  seen.accelerators = std::move(gpus);
  host.status = std::move(seen);
  return host;
}

}  // namespace ferry::test
