// SPDX-License-Identifier: Apache-2.0
// The frameworks whose vGPUs are mediated devices (mdev_bus.h), made on the GPU itself or on its virtual
// functions.
#include "mdev/framework.h"

namespace ferry::mdev {
namespace {

// The path leads through the parent, so that a stuck write names the GPU even after the device has left the
// bus.
std::filesystem::path device_path(const vfio::PciAddress& parent, const VgpuId& id) {
  return vfio::sysfs_path(parent) / id.text;
}

class MediatedDevices final : public Framework {
 public:
  using Framework::Framework;

  bool is_parent(const HostScan& scan, const vfio::PciAddress& function) const override {
    const auto parent = scan.bus.parents.find(function);
    return parent != scan.bus.parents.end() && (!parent->second.types.empty() || parent->second.problem);
  }

  void read_gpu(const HostScan& scan, VirtualFunctions functions, VgpuGpu& gpu) const override {
    const auto add = [&](const vfio::PciAddress& address) {
      if (const auto known = scan.bus.parents.find(address); known != scan.bus.parents.end())
        gpu.parents.push_back(known->second);
    };
    if (!on_virtual_functions()) add(gpu.address());
    for (const vfio::PciFunction* function : functions) add(function->address);
  }

  void read_devices(const HostFs& host, const vfio::Inventory& /*inventory*/, VgpuFacts facts,
                    VgpuGpu& gpu) const override {
    for (VgpuParent& parent : gpu.parents) read_mdev_devices(host, facts, parent, gpu.devices);
  }

  bool exists(const HostFs& host, const VgpuDevice& device) const override {
    return host.exists("sys/bus/mdev/devices/" + device.id.text);
  }

  Result<std::uint32_t> available_now(const HostFs& host, const vfio::PciAddress& parent,
                                      const std::string& type_id) const override {
    return read_available(host, type_path(parent, type_id));
  }

  AttributeWrite creation_write(const vfio::PciAddress& parent, const std::string& type_id,
                                const VgpuId& id) const override {
    return {.path = type_path(parent, type_id) / "create", .value = id.text};
  }
  AttributeWrite removal_write(const vfio::PciAddress& parent, const VgpuId& id) const override {
    return {.path = device_path(parent, id) / "remove", .value = "1"};
  }
  Result<std::vector<AttributeWrite>> params_writes(const HostFs& /*host*/, const vfio::PciAddress& parent,
                                                    const VgpuId& id,
                                                    const std::string& params) const override {
    return std::vector{
        AttributeWrite{.path = device_path(parent, id) / "nvidia/vgpu_params", .value = params}};
  }
  AttributeWrite placement_write(const vfio::PciAddress& parent, const VgpuId& id,
                                 std::uint32_t placement) const override {
    return {.path = device_path(parent, id) / "nvidia/placement_id", .value = std::to_string(placement)};
  }
};

}  // namespace

const Framework& mediated_on_gpu() {
  // Boards that make vGPUs on the GPU itself are too old to choose placements.
  static const MediatedDevices framework(
      {.name = "mdev on the GPU",
       .has_mediated_devices = true,
       .has_uuids = true,
       .why_no_placement = "makes vGPUs on itself, and no places for them can be chosen there"});
  return framework;
}

const Framework& mediated_on_functions() {
  static const MediatedDevices framework({.name = "mdev on virtual functions",
                                          .on_virtual_functions = true,
                                          .has_mediated_devices = true,
                                          .has_uuids = true});
  return framework;
}

const Framework& no_framework() {
  // A GPU whose driver lists no types may still have mediated devices.
  static const MediatedDevices framework(
      {.name = "none", .makes_vgpus = false, .has_mediated_devices = true, .has_uuids = true});
  return framework;
}

}  // namespace ferry::mdev
