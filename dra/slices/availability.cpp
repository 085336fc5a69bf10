// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "dra/names.h"
#include "dra/slices/publication.h"

namespace ferry::dra {
namespace {

std::string claim_text(const HeldDevice& held) {
  return fmt::format("the claim with UID {}", held.claim);
}

Result<> check_neighbour(const NodeModel& node, const Gpu& gpu, const PublishedDevice& device,
                         const HeldDevice& held) {
  const std::string& name = device.device.name;
  const Gpu* const other_gpu = node.find(held.asked.gpu);
  const bool is_in_group =
      other_gpu != nullptr && gpu.iommu_group && gpu.iommu_group == other_gpu->iommu_group;
  if (held.asked.gpu != gpu.address && !is_in_group) return {};
  if (is_whole(device.device) || is_whole(held.device))
    return fail(
        Errc::refused,
        fmt::format("{}: {} has {} of the same IOMMU group", name, claim_text(held), held.device.name),
        "the claim waits until that one has ended");
  const std::uint64_t size = framebuffer_of(device.device);
  const std::uint64_t other = framebuffer_of(held.device);
  if (!gpu.has_one_size() || held.asked.gpu != gpu.address || size == other) return {};
  return fail(Errc::refused,
              fmt::format("{}: the vGPUs of GPU {} have {} MiB each now, and this one needs {} MiB", name,
                          gpu.address.text(), other / kMiB, size / kMiB),
              "the claim waits until these vGPUs are gone");
}

Result<> check_counters(const Publication& publication, std::span<const HeldDevice> others,
                        const PublishedDevice& device) {
  for (const CounterConsumption& consumption : device.device.consumes) {
    const CounterSet* const set = publication.counter_set(consumption.set);
    Counters totals = set == nullptr ? Counters() : set->counters;
    Counters used_of;
    for (const HeldDevice& held : others) add_counters(held.device, consumption.set, used_of);
    for (const auto& [counter, needed] : consumption.counters) {
      const std::uint64_t used = used_of[counter];
      const std::uint64_t total = totals[counter];
      if (used + needed <= total) continue;
      return fail(
          Errc::refused,
          fmt::format("{}: it needs {} of the counter {}, and claims use {} of {}", device.device.name,
                      quantity_text(needed), counter, quantity_text(used), quantity_text(total)),
          "the claim waits until others have ended");
    }
  }
  return {};
}

/// `held`: all devices that claims have, with those of this claim that were checked before.
Result<> check_one(const NodeModel& node, const Publication& publication, std::span<const HeldDevice> held,
                   const std::string& name, std::string_view claim) {
  const PublishedDevice* const device = publication.device(name);
  const Gpu* const gpu = device == nullptr ? nullptr : node.find(device->asked.gpu);
  if (gpu == nullptr)
    return fail(Errc::not_found, fmt::format("{}: this node has no such device now", name),
                "delete the pod, so that its claim is allocated again");
  std::vector<HeldDevice> others;
  for (const HeldDevice& one : held) {
    if (one.device.name != name)
      others.push_back(one);
    else if (one.claim != claim)
      return fail(Errc::refused, fmt::format("{}: {} still has it", name, claim_text(one)),
                  "the claim waits until that one has ended");
    else
      return {};
  }
  // KubeVirt finds a device by the UUID of a mediated device, or by a PCI address of exactly twelve
  // characters.
  const bool whole = is_whole(device->device);
  const bool has_uuid = !whole && gpu->framework == VgpuFramework::mdev;
  if (!has_uuid && !fits_pci_bus_id(gpu->address))
    return fail(Errc::unsupported,
                fmt::format("{}: the PCI domain of GPU {} has more than four digits, and KubeVirt takes no "
                            "such address",
                            name, gpu->address.text()),
                "let the VM ask for another GPU, and take this one out of DRA in its policy");

  const char* const state = gpu->health == GpuHealth::ready ? "makes no vGPUs now" : "is unhealthy";
  if (!gpu->is_ready(whole))
    return fail(Errc::refused,
                fmt::format("{}: GPU {} {}: {}", name, gpu->address.text(), state, gpu->obstacle()),
                "the claim waits until the GPU is ready");

  for (const HeldDevice& other : others)
    if (auto fits = check_neighbour(node, *gpu, *device, other); !fits) return fits;
  return check_counters(publication, others, *device);
}

}  // namespace

Result<> check_available(const NodeModel& node, const Publication& publication,
                         std::span<const std::string> devices, std::string_view claim) {
  std::vector<HeldDevice> held = node.held;
  for (const std::string& name : devices) {
    if (auto available = check_one(node, publication, held, name, claim); !available) return available;
    const bool has_it = std::ranges::any_of(
        held, [&](const HeldDevice& one) { return one.device.name == name && one.claim == claim; });
    if (has_it) continue;
    const PublishedDevice& device = *publication.device(name);
    held.push_back(
        {.claim = std::string(claim), .asked = device.asked, .device = device.device, .counters = {}});
  }
  return {};
}

}  // namespace ferry::dra
