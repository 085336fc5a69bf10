// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_state.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/vm_nodes.h"

namespace ferry::host {
namespace {

using vfio::PciAddress;

/// The IOMMU group of a device, and the names of its members' own entries in vfio.
struct VmGroup {
  std::uint32_t group = 0;
  std::vector<std::string> vfio_devices = {};
};

Result<VmGroup> group_of_function(const HostFs& host, const PciAddress& address) {
  const auto function = vfio::read_function(host, address);
  if (!function) return fail(function.error());
  const auto group = function->iommu_group;
  if (!group) {
    return fail(Errc::failed, address.text() + " is in no IOMMU group",
                "`ferry doctor --for passthrough` says why");
  }
  VmGroup out{.group = *group};
  const auto members = vfio::scan_members(host, {out.group}, {address});
  if (!members) return fail(members.error());
  for (const PciAddress& one : members->group_of(*function)) {
    const vfio::PciFunction* const member = members->find(one);
    // The device of another vendor in the group is given by the group's node.
    if (member != nullptr && member->vendor == function->vendor && !member->vfio_devices.empty())
      out.vfio_devices.push_back(member->vfio_devices.front());
  }
  return out;
}

Result<VmGroup> group_of_mediated_device(const HostFs& host, const std::string& uuid) {
  const auto link = host.link_name(std::filesystem::path("sys/bus/mdev/devices") / uuid / "iommu_group");
  if (!link) return fail(link.error());
  const auto group = whole_number(*link);
  if (!group) return fail(Errc::malformed_host, fmt::format("vGPU {}: its IOMMU group is '{}'", uuid, *link));
  return VmGroup{.group = *group};
}

bool is_as_made_ready(const ClaimedDevice& device, const ScannedNode& node) {
  if (!device.is_whole()) {
    const mdev::VgpuDevice* const vgpu = node.vgpus.find({device.id()});
    const auto& placement = device.request.placement;
    return vgpu != nullptr && vgpu->type_id == device.request.type &&
           (!placement || !vgpu->placement || vgpu->placement == placement);
  }
  return std::ranges::all_of(device.gpus, [&](const ClaimedGpu& gpu) {
    const vfio::PciFunction* const function = node.inventory.find(gpu.address);
    return function != nullptr && vfio::on_vfio_driver(*function);
  });
}

}  // namespace

bool is_intact(const Claim& claim, const ScannedNode& node) {
  return std::ranges::all_of(claim.devices,
                             [&](const ClaimedDevice& device) { return is_as_made_ready(device, node); });
}

std::map<PciAddress, std::vector<std::string>> lost_claims(const std::vector<Claim>& prepared,
                                                           const ScannedNode& node) {
  std::map<PciAddress, std::vector<std::string>> out;
  for (const Claim& claim : prepared) {
    for (const ClaimedDevice& device : claim.devices) {
      // A GPU that the scan could not read loses no claim.
      const mdev::VgpuGpu* const gpu = node.vgpus.find(device.request.gpu);
      if (gpu == nullptr || gpu->problem() != nullptr) continue;
      const bool are_read = std::ranges::all_of(device.gpus, [&](const ClaimedGpu& one) {
        const vfio::PciFunction* const function = node.inventory.find(one.address);
        return function != nullptr && !function->problem;
      });
      if (!are_read || is_as_made_ready(device, node)) continue;
      auto& lost = out[device.request.gpu];
      if (lost.empty() || lost.back() != claim.uid) lost.push_back(claim.uid);
    }
  }
  return out;
}

std::map<PciAddress, std::vector<std::string>> unplugged_gpus(const std::vector<Claim>& prepared,
                                                              const vfio::Inventory& inventory) {
  std::map<PciAddress, std::vector<std::string>> out;
  for (const Claim& claim : prepared)
    for (const ClaimedDevice& device : claim.devices)
      for (const ClaimedGpu& gpu : device.gpus)
        if (inventory.find(gpu.address) == nullptr) out[device.request.gpu].push_back(gpu.address.text());
  return out;
}

Result<api::PreparedDevice> read_prepared(const NodeContext& context, const ClaimedDevice& device) {
  const HostFs& fs = context.fs();
  const auto& function = device.result.function;
  const auto group =
      function ? group_of_function(fs, *function) : group_of_mediated_device(fs, device.result.mdev_uuid);
  if (!group) return fail(group.error());
  api::PreparedDevice out{.mdev_uuid = device.result.mdev_uuid, .function = function};
  const auto is_there = [&fs](const std::string& path) { return fs.exists(path.c_str()); };
  for (std::string& path : vfio::vm_nodes(is_there, group->group, group->vfio_devices)) {
    const auto mode = vfio::node_mode(fs, path);
    out.nodes.push_back(
        {.path = std::move(path), .mode = mode ? std::optional<std::uint32_t>(*mode) : std::nullopt});
  }
  if (out.nodes.empty()) {
    return fail(Errc::failed, vfio::missing_nodes(group->group),
                "does udev make the nodes, and has the kernel CONFIG_VFIO_GROUP?");
  }
  return out;
}

}  // namespace ferry::host
