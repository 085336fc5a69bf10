// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

#include <spdlog/spdlog.h>

#include "api/serving.h"
#include "common/generation.h"
#include "host/gpu_conditions.h"
#include "host/node_keeper.h"
#include "host/register_look.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/kernel_facts.h"

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

}  // namespace

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
  }
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

/// Generations continue after a restart: the plugin's answer to an earlier hostd is no answer to this one. So
/// do the registers of GPUs that are in use.
void StatusFile::begin_generations() {
  const auto text = host_.read_file(file_);
  if (const auto left = text ? api::read_host_status(*text) : Result<api::HostStatus>(fail(text.error())))
    take_over_registers(host_, *left, memory_.registers);
  std::uint64_t& generation = memory_.status.generation;
  if (const auto last = left_by_the_last().generation; last > 0) generation = last;
  if (const auto listing = read_advertised_resources(host_, advertised_); listing && *listing)
    generation = std::max(generation, (*listing)->state_generation);
}

}  // namespace ferry::host
