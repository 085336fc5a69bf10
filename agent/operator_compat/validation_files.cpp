// SPDX-License-Identifier: Apache-2.0
#include "agent/operator_compat/validation_files.h"

#include <algorithm>

#include <fmt/format.h>

namespace ferry::agent {
namespace {

constexpr std::string_view kWorkloadType = "workload-type";
constexpr std::string_view kVfioReady = "vfio-pci-ready";
constexpr std::string_view kVgpuReady = "vgpu-devices-ready";
constexpr std::string_view kOurs = "gpu-ferry\n";

// On a node with several modes the consumers wait for vGPUs, which are created last.
Workload workload_of(const policy::Policy& policy) {
  if (policy.asks_for(policy::Mode::vgpu)) return Workload::vm_vgpu;
  return policy.asks_for(policy::Mode::passthrough) ? Workload::vm_passthrough : Workload::container;
}

std::string content_of(Workload workload) {
  return std::string(text(workload)) + "\n";
}

ValidationFile ready_file(std::string_view name, bool ready, std::string why) {
  return {.name = name,
          .content = ready ? std::optional<std::string>(kOurs) : std::nullopt,
          .why = std::move(why)};
}

ValidationFile workload_file(const DesiredState& desired_state) {
  const Workload workload = workload_of(desired_state.desired_policy.policy);
  ValidationFile out{
      .name = kWorkloadType,
      .content = {},
      .why = fmt::format("policy {} is of {}", desired_state.desired_policy.name, text(workload))};
  // No consumer waits for this file on a node for containers.
  if (workload != Workload::container) out.content = content_of(workload);
  return out;
}

ValidationFile vfio_file(const DesiredState& desired_state, const api::HostStatus* host) {
  if (!desired_state.desired_policy.policy.asks_for(policy::Mode::passthrough))
    return ready_file(kVfioReady, false, "the policy has no GPU for passthrough");
  if (host == nullptr) return ready_file(kVfioReady, false, "the host is not in its desired state");
  const bool ready = std::ranges::all_of(host->accelerators, [](const api::AcceleratorStatus& gpu) {
    return gpu.desired != policy::Mode::passthrough ||
           (gpu.mode == policy::Mode::passthrough && gpu.state == api::GpuState::ready);
  });
  return ready_file(kVfioReady, ready, ready ? "every such GPU is ready" : "not every such GPU is ready");
}

ValidationFile vgpu_file(const DesiredState& desired_state, const api::HostStatus* host) {
  if (!desired_state.desired_policy.policy.asks_for(policy::Mode::vgpu))
    return ready_file(kVgpuReady, false, "no GPU is to be divided");
  if (host == nullptr) return ready_file(kVgpuReady, false, "the host is not in its desired state");
  const bool ready = std::ranges::any_of(host->accelerators, [](const api::AcceleratorStatus& gpu) {
    return gpu.desired == policy::Mode::vgpu && !gpu.vgpus.empty();
  });
  return ready_file(kVgpuReady, ready, ready ? "there are vGPUs" : "there are no vGPUs");
}

bool is_ours(std::string_view name, const std::string& content) {
  if (name != kWorkloadType) return content == kOurs;
  return content == content_of(Workload::vm_passthrough) || content == content_of(Workload::vm_vgpu);
}

/// Absent: the file is right already.
std::optional<ValidationFileChange> change_of(const ValidationFile& file,
                                              const std::optional<std::string>& now) {
  const bool is_right = file.content ? now && (file.name != kWorkloadType || now == file.content)
                                     : !now || !is_ours(file.name, *now);
  if (is_right) return std::nullopt;
  return ValidationFileChange{
      .path = fmt::format("{}/{}", kValidationsFolder, file.name), .removed = !file.content, .why = file.why};
}

}  // namespace

std::vector<ValidationFile> validation_files(const DesiredState& desired_state, const HostSide& host) {
  switch (desired_state.kind) {
    case DesiredState::Kind::invalid:  // the host stays as it was
      return {};
    case DesiredState::Kind::standby:  // the files are the other program's now
    case DesiredState::Kind::nothing:
      return {ready_file(kVfioReady, false, desired_state.reason),
              ready_file(kVgpuReady, false, desired_state.reason)};
    case DesiredState::Kind::policy:
      break;
  }
  // The end of hostd does not undo its work, and without these files the operator's pods could not start
  // again.
  HostSide as_said = host;
  as_said.hostd_down = std::chrono::seconds(0);
  const bool good = node_report(desired_state, as_said).condition == NodeCondition::ready;
  const api::HostStatus* const seen = good && host.status ? &*host.status : nullptr;
  // An outdated file is removed first: a consumer that has seen workload-type must find the right ready file.
  return {vfio_file(desired_state, seen), vgpu_file(desired_state, seen), workload_file(desired_state)};
}

Result<std::vector<ValidationFileChange>> write_validation_files(HostFs& host,
                                                                 const std::vector<ValidationFile>& files,
                                                                 bool dry_run) {
  std::vector<ValidationFileChange> out;
  for (const ValidationFile& file : files) {
    const std::string path = fmt::format("{}/{}", kValidationsFolder, file.name);
    auto now = host.read_file(path);
    if (!now && !is_gone(now.error())) return fail(std::move(now).error());
    const auto change = change_of(file, now ? std::optional<std::string>(*now) : std::nullopt);
    if (!change) continue;
    if (!dry_run) {
      auto made = file.content ? host.write_file(path, *file.content) : host.remove_file(path);
      if (!made) return fail(std::move(made).error());
    }
    out.push_back(*change);
  }
  return out;
}

}  // namespace ferry::agent
