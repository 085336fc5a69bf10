// SPDX-License-Identifier: Apache-2.0
#include "dra/dra_checks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "common/text/text.h"
#include "dra/names.h"

namespace ferry::dra {
namespace {

constexpr const char* kRegistry = "var/lib/kubelet/plugins_registry";
constexpr const char* kMediatedParents = "sys/class/mdev_bus";

/// A driver of another program that publishes GPUs and changes their drivers, by its name.
struct OtherDriver {
  std::string_view name;
  const char* cure;
};
constexpr std::array<OtherDriver, 3> kOtherDrivers = {{
    {.name = "gpu.nvidia.com",
     .cure = "switch PassthroughSupport and VGPUSupport of NVIDIA's DRA driver off, or keep the driver from "
             "this node: it publishes each GPU, also those on vfio-pci, and at the end of its claim binds it "
             "to nvidia"},
    {.name = "gpu.amd.com", .cure = "let one driver alone serve the GPUs of AMD on this node"},
    {.name = "gpu.intel.com", .cure = "let one driver alone serve the GPUs of Intel on this node"},
}};

/// True for the registration socket of a driver: "NAME-reg.sock", or "NAME-UID-reg.sock".
bool is_registration_of(std::string_view socket, std::string_view driver) {
  constexpr std::string_view kEnd = "-reg.sock";
  return socket.starts_with(driver) && socket.ends_with(kEnd) &&
         socket.substr(driver.size()).starts_with('-');
}

Check registered_check(const Result<std::vector<std::string>>& sockets) {
  Check check{.id = "dra-registered",
              .subject = kHostSubject,
              .why = "the kubelet asks the drivers that have a socket in its folder of plugins"};
  if (!sockets)
    return std::move(check).unknown(
        sockets.error().message,
        "run as root; a kubelet with another --root-dir has the folder plugins_registry there");
  const auto found =
      std::ranges::find_if(*sockets, [](const auto& socket) { return is_registration_of(socket, kDriver); });
  if (found != sockets->end()) return std::move(check).passed(fmt::format("/{} has {}", kRegistry, *found));
  return std::move(check).warned(fmt::format("/{} has no socket of {}", kRegistry, kDriver),
                                 "set dra.enabled=true in the chart's values; if it is set, the log of the "
                                 "DaemonSet ferry-dra has the reason");
}

Check others_check(const Result<std::vector<std::string>>& sockets) {
  Check check{.id = "dra-other-drivers",
              .subject = kHostSubject,
              .why = "two programs that bind the same GPU take it from each other's VMs"};
  if (!sockets) return std::move(check).unknown(sockets.error().message, "run as root");
  for (const OtherDriver& other : kOtherDrivers) {
    const auto found = std::ranges::find_if(
        *sockets, [&](const auto& socket) { return is_registration_of(socket, other.name); });
    if (found != sockets->end())
      return std::move(check).warned(fmt::format("/{} has {}", kRegistry, *found), other.cure);
  }
  return std::move(check).passed(fmt::format("/{} has no socket of another driver of GPUs", kRegistry));
}

Check claimable_check(const HostFs& host) {
  Check check{.id = "dra-gpus",
              .subject = kHostSubject,
              .why = "claims get the GPUs whose policy has `allocation: dra`, as hostd lists them"};
  constexpr const char* kCure =
      "give a GPU `allocation: dra` in the policy of this node, and see `ferry status` whether it is blocked";
  if (!host.exists(api::kClaimableGpusFile))
    return std::move(check).warned(fmt::format("there is no /{}", api::kClaimableGpusFile), kCure);
  const auto text = host.read_file(api::kClaimableGpusFile);
  if (!text) return std::move(check).unreadable(text.error());
  const auto gpus = api::read_claimable_gpus(*text);
  if (!gpus) return std::move(check).unknown(gpus.error().message, gpus.error().hint);
  const auto count = static_cast<std::size_t>(std::ranges::count(*gpus, true, &api::ClaimableGpu::for_dra));
  if (count == 0)
    return std::move(check).warned(fmt::format("/{} has no GPU for claims", api::kClaimableGpusFile), kCure);
  return std::move(check).passed(fmt::format("{} in /{}", counted(count, "GPU"), api::kClaimableGpusFile));
}

Check device_check(const api::ClaimableGpu& gpu) {
  Check check{.id = "dra-device",
              .subject = gpu.address.text(),
              .why = "a claim gets a GPU whole, or a vGPU of a type that `allow` names"};
  std::string why;
  if (gpu.health == api::GpuHealth::unhealthy)
    why = gpu.reason;
  else if (!gpu.whole && !gpu.vgpu_reason.empty())
    why = gpu.vgpu_reason;
  else if (!gpu.whole && std::ranges::none_of(gpu.types, &api::VgpuType::allowed))
    why = "`allow` names no device that it has";
  if (why.empty()) return std::move(check).passed("a new claim can have a device of it");
  return std::move(check).failed(
      "no new claim gets a device of it: " + why,
      "`ferry status` has the state of each GPU, and `ferry vgpu types` the types that its driver offers");
}

}  // namespace

std::vector<Check> dra_checks(const HostFs& host, const vfio::Inventory& inventory,
                              const vfio::AcceleratorRules& rules) {
  std::vector<Check> out;
  const auto sockets = host.list(kRegistry);
  out.push_back(registered_check(sockets));
  out.push_back(others_check(sockets));
  out.push_back(claimable_check(host));
  // KubeVirt's object decides, and a node does not show it. Only hosts with parents of mediated devices need
  // the check.
  if (const auto parents = host.list(kMediatedParents); parents && !parents->empty()) {
    Check mediated{.id = "kubevirt-keeps-mediated",
                   .subject = kHostSubject,
                   .why =
                       "each minute KubeVirt removes mediated devices of types that it does not know, also "
                       "those that a claim has just made"};
    out.push_back(std::move(mediated).unknown(
        fmt::format("/{} has {}: the KubeVirt object decides, and this host does not show it",
                    kMediatedParents, counted(parents->size(), "device")),
        "`kubectl ferry doctor NODE` looks; spec.configuration.mediatedDevicesConfiguration.enabled: false "
        "keeps KubeVirt from that"));
  }
  const auto text = host.read_file(api::kClaimableGpusFile);
  const auto listed = text ? api::read_claimable_gpus(*text).value_or(std::vector<api::ClaimableGpu>())
                           : std::vector<api::ClaimableGpu>();
  for (const auto& [address, function] : inventory.functions) {
    const auto entry = std::ranges::find(listed, address, &api::ClaimableGpu::address);
    const bool for_dra = entry != listed.end() && entry->for_dra;
    if (!for_dra && !rules.match(function)) continue;
    if (for_dra) out.push_back(device_check(*entry));
    Check group{
        .id = "dra-iommu-group",
        .subject = address.text(),
        .why = "devices of claims are published by IOMMU group, and a GPU without a group goes to no claim"};
    out.push_back(function.iommu_group
                      ? std::move(group).passed(fmt::format("group {}", *function.iommu_group))
                      : std::move(group).failed("it is in no IOMMU group",
                                                "`ferry doctor` says how to switch the IOMMU on"));
    Check domain{.id = "dra-pci-address",
                 .subject = address.text(),
                 .why = "KubeVirt reads only PCI addresses whose domain has four digits"};
    out.push_back(fits_pci_bus_id(address)
                      ? std::move(domain).passed("its domain has four digits")
                      : std::move(domain).warned(
                            "its domain has more than four digits: VMs of KubeVirt get mediated devices of "
                            "it, and not the whole GPU",
                            "switch Intel's VMD off in the firmware"));
  }
  return out;
}

}  // namespace ferry::dra
