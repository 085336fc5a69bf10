// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "api/serving.h"
#include "common/generation.h"
#include "host/gpu_conditions.h"
#include "host/node_keeper.h"
#include "host/register_look.h"
#include "host/sanitize/gpu_history.h"
#include "host/sanitize_look.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/kernel_facts.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/judgement/finding.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::host {
namespace {

void log_change(const api::HostStatus& now, const std::optional<api::HostStatus>& before) {
  if (!before || before->phase != now.phase) spdlog::info("node: {}", text(now.phase));
  if (now.error && (!before || before->error != now.error)) {
    spdlog::error("{}", now.error->message);
    if (!now.error->hint.empty()) spdlog::error("hint: {}", now.error->hint);
  }
  const std::string& was = before ? before->standby : std::string();
  if (!now.standby.empty() && was != now.standby)
    spdlog::warn("the device plugin is on standby: {}", now.standby);
  if (now.standby.empty() && !was.empty()) spdlog::info("the device plugin serves again");
  for (const api::AcceleratorStatus& gpu : now.accelerators) {
    if (gpu.state != api::GpuState::blocked && gpu.state != api::GpuState::failed) continue;
    const auto same = [&](const api::AcceleratorStatus& other) {
      return other.address == gpu.address && other.state == gpu.state && other.reason == gpu.reason;
    };
    if (!before || std::ranges::none_of(before->accelerators, same))
      spdlog::warn("{}: {}: {}", gpu.address.text(), text(gpu.state), gpu.reason);
  }
}

/// The state may have changed since the scan that judged the GPU. The plugin reads both, and refuses a
/// waiting pod if the GPU is available again with the finding. Absent: the GPU has no such finding now.
void renew_finding(api::AcceleratorStatus& gpu, vfio::RuleId rule, const std::optional<vfio::Finding>& now) {
  if (!gpu.findings) return;
  std::erase_if(*gpu.findings, [&](const api::ReportedFinding& finding) {
    return finding.rule == vfio::rule(rule).name && finding.about == gpu.address;
  });
  if (!now) return;
  const auto is_less_grave = [&](const api::ReportedFinding& finding) {
    const auto known = std::ranges::find(vfio::rules(), finding.rule, &vfio::Rule::name);
    return finding.answer != vfio::Answer::yes || known == vfio::rules().end() || known->id > rule;
  };
  gpu.findings->insert(std::ranges::find_if(*gpu.findings, is_less_grave), api::reported(*now));
}

void renew_findings(const HostFs& host, std::vector<api::AcceleratorStatus>& gpus) {
  std::vector<vfio::PciAddress> of_nvidia;
  for (const api::AcceleratorStatus& gpu : gpus)
    if (gpu.id.starts_with("10de:")) of_nvidia.push_back(gpu.address);
  const auto open_modes = vfio::open_modes(host, of_nvidia);
  std::optional<vfio::Finding> now;
  for (api::AcceleratorStatus& gpu : gpus) {
    now.reset();
    if (const auto why = open_modes.find(gpu.address); why != open_modes.end())
      now = vfio::interrupted_mode_change(gpu.address, why->second);
    renew_finding(gpu, vfio::RuleId::interrupted_mode_change, now);
    // The record alone knows a GPU on another driver, and the scan one for claims.
    if (!gpu.sanitize && (!is_sanitized(gpu) || gpu.allocation == api::Allocation::dra)) continue;
    now.reset();
    std::string why = gpu.sanitize ? why_not_available(gpu.address, *gpu.sanitize) : std::string();
    if (!why.empty()) now = vfio::not_sanitized(gpu.address, std::move(why));
    renew_finding(gpu, vfio::RuleId::not_sanitized, now);
  }
}

}  // namespace

/// No status may let a GPU go whose past the look of this round has not judged yet.
std::optional<api::SanitizeStatus> StatusFile::sanitize_status(const api::AcceleratorStatus& gpu) const {
  const SanitizeMemory& memory = memory_.sanitize;
  if (memory.policy.value_or(policy::Sanitize::off) == policy::Sanitize::off || !is_sanitized(gpu))
    return std::nullopt;
  const auto known = memory.gpus.find(gpu.address);
  if (known == memory.gpus.end()) {
    if (memory.fault.empty()) return api::SanitizeStatus{.state = api::SanitizeState::sanitizing};
    if (memory.policy != policy::Sanitize::required) return std::nullopt;
    return api::SanitizeStatus{.state = api::SanitizeState::failed, .detail = memory.fault};
  }
  api::SanitizeStatus out = known->second.status;
  if (out.state != api::SanitizeState::in_use &&
      !known->second.knows(boot_id(host_).value_or(""), vfio::binding_of(host_, gpu.address)))
    out.state = api::SanitizeState::sanitizing;
  return out;
}

Result<> StatusFile::publish(api::HostStatus next) {
  next.pid = ::getpid();
  next.boot_id = boot_id(host_).value_or("");
  next.standby = memory_.serving.standby;
  return publish_again(std::move(next));
}

Result<> StatusFile::publish_again(api::HostStatus next) {
  StatusMemory& memory = memory_.status;
  auto& published = memory.published;
  if (!published) begin_generations();
  next.generation = memory.generation;
  for (api::AcceleratorStatus& gpu : next.accelerators) {
    for (api::VgpuStatus& vgpu : gpu.vgpus) {
      const auto known = memory_.vgpu_use.users.find(vgpu.id);
      vgpu.users = known == memory_.vgpu_use.users.end() ? std::nullopt : std::optional(known->second);
    }
    const auto read = memory_.registers.entries.find(gpu.address);
    gpu.registers =
        read == memory_.registers.entries.end() ? std::nullopt : std::optional(read->second.registers);
    gpu.sanitize = sanitize_status(gpu);
  }
  renew_findings(host_, next.accelerators);
  if (published && *published == next && host_.exists(file_)) return {};
  next.generation = memory.generation = next_generation(memory.generation);
  if (auto written = host_.write_file(file_, api::host_status_text(next)); !written) return written;
  log_change(next, published);
  const bool began_again = memory.generation < memory.unavailable_since;
  if (!published || began_again || ids_of(published->unavailable) != ids_of(next.unavailable))
    memory.unavailable_since = memory.generation;
  published = std::move(next);
  return {};
}

void StatusFile::pass_on_serving(const std::filesystem::path& serving_file) {
  ServingMemory& memory = memory_.serving;
  const auto& published = memory_.status.published;
  const auto text = host_.read_file(serving_file, HostFs::Links::refused);
  const auto said = text                    ? api::read_serving_file(*text, serving_file.string())
                    : is_gone(text.error()) ? Result<std::string>(std::string())
                                            : Result<std::string>(fail(text.error()));
  if (said) {
    memory.standby = *said;
    memory.fault.clear();
  } else {
    if (!published) memory.standby = left_by_the_last().standby;
    if (std::exchange(memory.fault, said.error().message) != said.error().message) {
      spdlog::error("{}; the device plugin keeps its last order", said.error().message);
      if (!said.error().hint.empty()) spdlog::error("hint: {}", said.error().hint);
    }
  }
  if (!published || published->standby == memory.standby) return;
  api::HostStatus next = *published;
  next.standby = memory.standby;
  if (auto written = publish_again(std::move(next)); !written) spdlog::error("{}", written.error().message);
}

std::vector<api::UnavailableDevice> StatusFile::unavailable() const {
  if (const auto& published = memory_.status.published) return published->unavailable;
  return left_by_the_last().unavailable;
}

api::PluginOrders StatusFile::left_by_the_last() const {
  const auto text = host_.read_file(file_);
  return text ? api::read_plugin_orders(*text).value_or(api::PluginOrders()) : api::PluginOrders();
}

void remember(const GpuHistories& histories, SanitizeMemory& memory) {
  memory.policy = histories.policy;
  memory.gpus.clear();
  if (histories.policy == policy::Sanitize::off) return;
  for (const GpuHistory& gpu : histories.gpus) {
    GpuHistory& kept = memory.gpus[gpu.address] = gpu;
    kept.events.clear();
  }
}

/// Generations continue after a restart: the plugin's answer to an earlier hostd is no answer to this one. So
/// do the registers of GPUs that are in use. A GPU that waits for its reset must not seem free of it.
void StatusFile::begin_generations() {
  const auto text = host_.read_file(file_);
  if (const auto left = text ? api::read_host_status(*text) : Result<api::HostStatus>(fail(text.error())))
    take_over_registers(host_, *left, memory_.registers);
  if (const auto histories = load_gpu_histories(host_)) {
    const auto policy = memory_.sanitize.policy;
    remember(*histories, memory_.sanitize);
    if (policy) memory_.sanitize.policy = policy;
  }
  std::uint64_t& generation = memory_.status.generation;
  if (const auto last = left_by_the_last().generation; last > 0) generation = last;
  if (const auto listing = read_advertised_resources(host_); listing && *listing)
    generation = std::max(generation, (*listing)->state_generation);
}

}  // namespace ferry::host
