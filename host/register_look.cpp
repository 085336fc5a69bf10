// SPDX-License-Identifier: Apache-2.0
#include "host/register_look.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "host/node_keeper.h"
#include "host/sanitize/sanitize_step.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/locks.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/registers/reading_record.h"
#include "vfio/registers/register_reading.h"

namespace ferry::host {
namespace {

constexpr unsigned kLongestUndoPause = 5;  // 160 minutes

/// Keeps the facts of an earlier reading for a function that is in use now.
api::ReportedRegisters reported(vfio::RegisterFacts facts, std::uint64_t binding,
                                const RegisterMemory::Entry* before) {
  if (facts.in_use && before != nullptr && before->registers.read_at != 0) {
    api::ReportedRegisters out = before->registers;
    out.facts.problem = std::move(facts.problem);
    out.facts.in_use = true;
    return out;
  }
  const std::uint64_t read_at = facts.problem.empty() ? seconds_now() : 0;
  return {.facts = std::move(facts), .read_at = read_at, .binding = binding};
}

/// RegisterMemory::not_undone, as it is now.
auto devices_not_undone(const HostFs& host) {
  std::map<vfio::PciAddress, std::pair<std::uint64_t, bool>> out;
  for (const vfio::PciAddress& device : vfio::interrupted_mode_changes(host))
    out.emplace(device, std::pair(vfio::binding_of(host, device), vfio::is_opened(host, device)));
  return out;
}

}  // namespace

std::vector<vfio::PciAddress> with_registers(const api::HostStatus& status, policy::ReadRegisters which,
                                             bool confidential) {
  std::vector<vfio::PciAddress> out;
  if (which == policy::ReadRegisters::off) return out;
  if (which == policy::ReadRegisters::automatic && !confidential) return out;
  for (const api::AcceleratorStatus& gpu : status.accelerators)
    if (gpu.id.starts_with("10de:") && gpu.driver.value_or("vfio-pci") == "vfio-pci")
      out.push_back(gpu.address);
  return out;
}

void look_at_registers(const HostFs& host, HostWriter& writer, const std::vector<vfio::PciAddress>& wanted,
                       Moment now, RegisterMemory& memory) {
  std::erase_if(memory.entries,
                [&](const auto& entry) { return std::ranges::find(wanted, entry.first) == wanted.end(); });
  std::vector<vfio::PciAddress> due;
  for (const vfio::PciAddress& gpu : wanted) {
    const auto known = memory.entries.find(gpu);
    const bool as_it_was =
        known != memory.entries.end() && known->second.registers.binding == vfio::binding_of(host, gpu) &&
        (known->second.registers.facts.in_use ? vfio::is_opened(host, gpu)
                                              : now < known->second.read + kBetweenReadings);
    if (!as_it_was) due.push_back(gpu);
  }
  if (due.empty() && !vfio::has_unfinished_reading(host)) return;
  vfio::RegisterReading reading = vfio::read_registers(writer, due);
  for (const std::string& fault : reading.faults) spdlog::warn("{}", fault);
  for (auto& [gpu, facts] : reading.functions) {
    const std::uint64_t binding = vfio::binding_of(host, gpu);
    const auto known = memory.entries.find(gpu);
    const bool same = known != memory.entries.end() && known->second.registers.binding == binding;
    auto next = reported(std::move(facts), binding, same ? &known->second : nullptr);
    memory.entries.insert_or_assign(gpu, RegisterMemory::Entry{.read = now, .registers = std::move(next)});
  }
}

void undo_mode_change(HostFs& host, HostWriter& writer, Moment now, RegisterMemory& memory) {
  if (const auto lock = NodeLock::take(host, std::chrono::milliseconds(0)); lock) {
    const bool as_it_was = memory.not_undone == devices_not_undone(host);
    if (memory.undo_again && now < *memory.undo_again && as_it_was) return;
    memory.undos = as_it_was ? memory.undos + 1 : 0;
    const vfio::ModeOutcome outcome = vfio::undo_interrupted_mode_change(writer, host);
    memory.not_undone = devices_not_undone(host);
    memory.undo_again.reset();
    // A try resets the device and waits for its boot, and nothing else is done on the host meanwhile.
    if (vfio::has_interrupted_mode_change(host))
      memory.undo_again = now + kBetweenReadings * (1U << std::min(memory.undos, kLongestUndoPause));
    if (!outcome.problem.empty()) spdlog::warn("{}", outcome.problem);
    for (const vfio::DeviceOutcome& device : outcome.devices)
      if (device.result == vfio::ModeResult::unknown)
        spdlog::error("{}: {}; start no VM with it: hostd tries again to undo the change of its mode",
                      device.address.text(), device.problem);
  }
}

void take_over_registers(const HostFs& host, const api::HostStatus& left, RegisterMemory& memory) {
  if (left.boot_id.empty() || left.boot_id != boot_id(host).value_or("")) return;
  for (const api::AcceleratorStatus& gpu : left.accelerators)
    if (gpu.registers && gpu.registers->binding != 0 &&
        gpu.registers->binding == vfio::binding_of(host, gpu.address))
      memory.entries.try_emplace(gpu.address,
                                 RegisterMemory::Entry{.read = Moment::min(), .registers = *gpu.registers});
}

void NodeKeeper::look_at_registers() {
  if (vfio::has_interrupted_mode_change(host_)) {
    const auto context = make_context_(uses_);
    if (context && context->rebind_context.writer != nullptr)
      host::undo_mode_change(host_, *context->rebind_context.writer, settings_.now(), memory_.registers);
  }
  const bool is_changing = vfio::has_interrupted_mode_change(host_);
  if (std::exchange(memory_.registers.saw_mode_change, is_changing) && !is_changing)
    for (auto& [gpu, entry] : memory_.registers.entries) entry.read = Moment::min();  // now due
  const auto& published = memory_.status.published;
  // A reset needs the readings itself, and a round follows it.
  if (!published || published->phase == api::NodePhase::applying || sanitize_runs_->any()) return;
  const auto which = policy_ ? policy_->registers : policy::ReadRegisters::automatic;
  const bool sets_mode = memory_.sanitize.mode.has_value();
  const auto wanted = with_registers(*published, sets_mode ? policy::ReadRegisters::all : which,
                                     settings_.has_confidential_class());
  if (wanted.empty() && memory_.registers.entries.empty() && !vfio::has_unfinished_reading(host_)) return;
  const auto context = make_context_(uses_);
  if (!context || context->rebind_context.writer == nullptr) return;
  host::look_at_registers(host_, *context->rebind_context.writer, wanted, settings_.now(), memory_.registers);
  if (auto written = status_.publish_again(*published); !written)
    spdlog::error("{}", written.error().message);
}

}  // namespace ferry::host
