// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "host/claims/claim_devices.h"
#include "host/sanitize/gpu_history.h"
#include "host/sanitize/sanitize_step.h"
#include "hostfs/kernel_facts.h"
#include "vfio/judgement/finding.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/pci/pci_function.h"

namespace ferry::host {
namespace {

/// `why`: of the event.
Result<GpuHistory> sanitize_gpu(HostFs& host, HostWriter& writer, const Sanitizer& sanitize,
                                const std::string& why, const vfio::PciFunction& function) {
  GpuHistory now;
  const auto change = [&](const std::function<void(GpuHistory & gpu, policy::Sanitize policy)>& how) {
    return change_gpu_histories(host, [&](GpuHistories& histories) {
      GpuHistory& gpu = histories.of(function.address, function.ids());
      how(gpu, histories.policy);
      now = gpu;
    });
  };
  auto began = change([&](GpuHistory& gpu, policy::Sanitize) {
    gpu.boot_id = boot_id(host).value_or("");
    gpu.binding = vfio::binding_of(host, function.address);
    gpu.enter(api::SanitizeState::sanitizing, why, seconds_now());
  });
  if (!began) return fail(std::move(began).error());
  const SanitizeRun run = run_sanitizer(sanitize, writer, host, function.address);
  auto ended =
      change([&](GpuHistory& gpu, policy::Sanitize policy) { finish(gpu, run, policy, seconds_now()); });
  if (!ended) return fail(std::move(ended).error());
  if (run.result.in_use)
    return fail(Errc::refused,
                fmt::format("{} is in use: a program has opened its group", function.address.text()),
                "the next try succeeds once that program has ended");
  spdlog::info("{}: {}: {}", now.address.text(), text(now.status.state), now.events.back().text);
  return now;
}

/// Calls `visit` for each GPU of the device that is on a vfio driver now, up to the first error.
Result<> for_each_gpu(const HostFs& host, const ClaimedDevice& device,
                      const std::function<Result<>(const vfio::PciFunction& gpu)>& visit) {
  if (!device.is_whole()) return {};
  for (const ClaimedGpu& gpu : device.gpus) {
    const auto function = vfio::read_function(host, gpu.address);
    if (!function || !vfio::on_vfio_driver(*function)) continue;
    if (auto done = visit(*function); !done) return done;
  }
  return {};
}

}  // namespace

Result<> sanitize_after(HostFs& host, HostWriter& writer, const Sanitizer& sanitize, const Claim& claim) {
  const auto histories = load_gpu_histories(host);
  if (!histories)
    spdlog::warn("{}: its GPUs are not sanitized: {}", claim.label(), histories.error().message);
  if (!histories || histories->policy == policy::Sanitize::off) return {};
  for (const ClaimedDevice& device : claim.devices) {
    auto done = for_each_gpu(host, device, [&](const vfio::PciFunction& gpu) -> Result<> {
      auto now = sanitize_gpu(host, writer, sanitize, claim.label() + " ends", gpu);
      return now ? Result<>() : fail(std::move(now).error());
    });
    if (!done) return done;
  }
  return {};
}

Result<> sanitize_before(HostFs& host, HostWriter& writer, const Sanitizer& sanitize, const Claim& claim,
                         const ClaimedDevice& device) {
  const auto histories = load_gpu_histories(host);
  if (!histories) return fail(histories.error());
  if (histories->policy == policy::Sanitize::off) return {};
  return for_each_gpu(host, device, [&](const vfio::PciFunction& gpu) -> Result<> {
    const GpuHistory* const known = histories->find(gpu.address);
    const bool is_clean = known != nullptr && known->id == gpu.ids() &&
                          known->status.state == api::SanitizeState::available &&
                          (known->status.result == api::SanitizeResult::accepted ||
                           known->knows(boot_id(host).value_or(""), vfio::binding_of(host, gpu.address)));
    if (is_clean) return {};
    auto now =
        sanitize_gpu(host, writer, sanitize, claim.label() + " begins, and its past is not known", gpu);
    if (!now) return fail(std::move(now).error());
    const std::string why = why_not_available(gpu.address, now->status);
    if (why.empty()) return {};
    return fail(Errc::refused, why, vfio::not_sanitized(gpu.address, why).advice);
  });
}

Result<> check_sanitized(const HostFs& host, const Claim& claim) {
  const auto unsanitized = unsanitized_gpus(host);
  if (!unsanitized) return fail(unsanitized.error());
  for (const ClaimedDevice& device : claim.devices) {
    if (!device.is_whole()) continue;
    for (const ClaimedGpu& gpu : device.gpus)
      if (const auto why = unsanitized->find(gpu.address); why != unsanitized->end())
        return fail(Errc::refused, why->second, vfio::not_sanitized(gpu.address, why->second).advice);
  }
  return {};
}

}  // namespace ferry::host
