// SPDX-License-Identifier: Apache-2.0
#include "host/sanitize/sanitize_step.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/text/words.h"
#include "hostfs/locks.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/registers/chip.h"
#include "vfio/registers/register_reading.h"

namespace ferry::host {
namespace {

using api::SanitizeResult;
using api::SanitizeState;

constexpr std::string_view kProtectedPcie = word_for(vfio::kWantedModes, vfio::WantedMode::ppcie);

}  // namespace

void follow(GpuHistory& gpu, const SanitizeFacts& facts, std::uint64_t now) {
  std::string why = facts.wrong_mode;  // empty: the GPU stays as it is
  if (facts.is_asked)
    why = "an administrator asks for it";
  else if (!gpu.knows(facts.boot_id, facts.binding))
    why = "it was bound since, or its past is not known";
  else if (gpu.status.state == SanitizeState::in_use || facts.used_since == gpu.status.count)
    why = "its last use is over";

  gpu.boot_id = facts.boot_id;
  gpu.binding = facts.binding;
  if (!facts.user.empty()) {
    if (gpu.status.state != SanitizeState::in_use) gpu.enter(SanitizeState::in_use, facts.user, now);
  } else if (!why.empty() && gpu.status.state != SanitizeState::sanitizing) {
    gpu.enter(SanitizeState::sanitizing, why, now);
  }
}

SanitizeRun run_sanitizer(const Sanitizer& sanitize, HostWriter& writer, const HostFs& host,
                          const vfio::PciAddress& gpu) {
  const auto began = std::chrono::steady_clock::now();
  vfio::Sanitizing result = sanitize(writer, host, gpu);
  const auto took = std::chrono::steady_clock::now() - began;
  return {.result = std::move(result), .took = std::chrono::duration_cast<std::chrono::milliseconds>(took)};
}

Sanitizer default_sanitizer() {
  return [](HostWriter& writer, const HostFs& host, const vfio::PciAddress& gpu) {
    return vfio::sanitize(writer, host, gpu);
  };
}

ModeSetter default_mode_setter() {
  return [](HostWriter& writer, HostFs& host, const vfio::PciAddress& gpu, vfio::WantedMode mode) {
    constexpr auto kPatience = std::chrono::seconds(30);
    const auto refusal = [](std::string why) {
      return vfio::ModeOutcome{.problem = std::move(why), .refused = true};
    };
    const std::array one{gpu};
    const auto lock = NodeLock::take(host, kPatience);
    if (!lock) return refusal(lock.error().message);
    if (vfio::has_interrupted_mode_change(host)) (void)vfio::undo_interrupted_mode_change(writer, host);
    // A person may have set it since the last reading.
    for (const auto& [address, facts] : vfio::read_registers(writer, one).functions)
      if (facts.mode() == kProtectedPcie)
        return refusal(fmt::format("{} is in protected PCIe, which is of a whole board", address.text()));
    return vfio::set_modes(writer, host, one, mode);
  };
}

SanitizeRun run_with_mode(const ModeSetter& set_mode, const Sanitizer& sanitize, HostWriter& writer,
                          HostFs& host, const vfio::PciAddress& gpu, vfio::WantedMode mode) {
  const vfio::ModeOutcome set = set_mode(writer, host, gpu, mode);
  const auto left_open = vfio::interrupted_mode_changes(host);
  SanitizeRun run;
  if (std::ranges::find(left_open, gpu) != left_open.end())
    run.result.problem = "its mode is left open: " + set.problem;
  else
    run = run_sanitizer(sanitize, writer, host, gpu);
  run.mode = mode;
  run.mode_refused = set.refused;
  if (!set.problem.empty() && run.result.is_reset())
    run.result.unproven = "its mode was not set: " + set.problem;
  return run;
}

std::string wrong_mode(const api::AcceleratorStatus& gpu, vfio::WantedMode desired) {
  if (!gpu.registers || !vfio::gpu_chip(gpu.id)) return {};
  const std::string_view now = gpu.registers->facts.mode();
  const std::string_view word = word_for(vfio::kWantedModes, desired);
  if (now.empty() || now == word || now == kProtectedPcie) return {};
  return fmt::format("its mode is '{}', and '{}' is asked for", now, word);
}

std::uint64_t seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

void finish(GpuHistory& gpu, const SanitizeRun& run, policy::Sanitize policy, std::uint64_t now) {
  const vfio::Sanitizing& done = run.result;
  if (done.in_use) {
    // Tries that follow each other leave a single event.
    const auto n = gpu.events.size();
    const bool was_so = n >= 2 && gpu.events[n - 2].state == SanitizeState::in_use &&
                        gpu.events[n - 1].state == SanitizeState::sanitizing;
    if (!was_so) return gpu.enter(SanitizeState::in_use, kUnknownUser, now);
    gpu.events.pop_back();
    gpu.status.state = SanitizeState::in_use;
    gpu.status.since = gpu.events.back().at;
    return;
  }
  api::SanitizeStatus& status = gpu.status;
  ++status.count;
  status.method = done.method;
  status.milliseconds = static_cast<std::uint64_t>(run.took.count());
  status.detail = done.is_reset() ? done.unproven : done.problem;
  status.result = done.is_proven()  ? SanitizeResult::proven
                  : done.is_reset() ? SanitizeResult::unproven
                                    : SanitizeResult::failed;
  if (status.result == SanitizeResult::failed && status.detail.empty()) status.detail = "it was not reset";
  std::string text = "not sanitized";  // or "reset by hot-reset in 2100 ms, proven"
  if (status.result != SanitizeResult::failed)
    text =
        fmt::format("reset by {} in {} ms, {}", status.method, status.milliseconds, api::text(status.result));
  if (!status.detail.empty()) text += ": " + status.detail;
  const bool kept_back = policy == policy::Sanitize::required && status.result != SanitizeResult::proven;
  gpu.enter(kept_back ? SanitizeState::failed : SanitizeState::available, std::move(text), now);
}

void accept(GpuHistory& gpu, std::uint64_t now) {
  if (gpu.status.state != SanitizeState::failed) return;
  ++gpu.status.count;
  gpu.status.result = SanitizeResult::accepted;
  gpu.enter(SanitizeState::available, "an administrator has accepted it without a proof", now);
}

bool SanitizeRuns::begin(const vfio::PciAddress& gpu) {
  const std::scoped_lock lock(mutex_);
  return runs_.try_emplace(gpu).second;
}

void SanitizeRuns::end(const vfio::PciAddress& gpu, SanitizeRun run) {
  const std::scoped_lock lock(mutex_);
  runs_[gpu] = std::move(run);
}

bool SanitizeRuns::has(const vfio::PciAddress& gpu) const {
  const std::scoped_lock lock(mutex_);
  return runs_.contains(gpu);
}

bool SanitizeRuns::any() const {
  const std::scoped_lock lock(mutex_);
  return !runs_.empty();
}

bool SanitizeRuns::any_ended() const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(runs_, [](const auto& run) { return run.second.has_value(); });
}

std::map<vfio::PciAddress, SanitizeRun> SanitizeRuns::take() {
  const std::scoped_lock lock(mutex_);
  std::map<vfio::PciAddress, SanitizeRun> out;
  for (auto run = runs_.begin(); run != runs_.end();) {
    if (auto& ended = run->second; ended.has_value()) {
      out.emplace(run->first, std::move(ended).value());
      run = runs_.erase(run);
    } else {
      ++run;
    }
  }
  return out;
}

}  // namespace ferry::host
