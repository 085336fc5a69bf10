// SPDX-License-Identifier: Apache-2.0
// SR-IOV virtual functions that go to a VM whole, by vfio-pci: those of AMD Instinct GPUs under gim, and of
// Intel's GPUs under xe or i915. The GPU itself stays on its driver. All functions of a GPU are alike, so
// each offers one type, called by the function's IDs. Ferry only reads them as types so far: vfio/ binds
// them. ABI: Documentation/ABI/testing/sysfs-bus-pci; drivers/gpu/drm/xe/xe_sriov_pf_sysfs.c.
#include <algorithm>
#include <array>
#include <string_view>

#include "mdev/framework.h"

namespace ferry::mdev {
namespace {

/// Drivers whose virtual functions are GPUs without vGPU types.
constexpr std::array<std::string_view, 3> kDrivers = {"gim", "i915", "xe"};

VgpuType type_of(const vfio::PciFunction& function, std::uint32_t functions) {
  VgpuType out;
  out.id = function.ids();
  out.name = out.id;
  out.short_name = out.id;
  out.available = vfio::on_vfio_driver(function) ? 0 : 1;
  out.max_instances = functions;
  out.device_api = "vfio-pci";
  return out;
}

class WholeFunctions final : public Framework {
 public:
  std::string_view name() const override { return "whole virtual functions"; }
  bool makes_vgpus() const override { return false; }
  bool on_virtual_functions() const override { return true; }
  bool has_mediated_devices() const override { return false; }
  bool has_uuids() const override { return false; }
  bool lists_only_creatable_types() const override { return false; }
  bool kernel_lists_devices() const override { return true; }
  bool refuses_removal_in_use() const override { return false; }
  std::string_view why_no_placement() const override {
    return "passes its virtual functions through whole, and no places for them can be chosen";
  }

  bool is_parent(const HostScan& scan, const vfio::PciAddress& address) const override {
    const vfio::PciFunction* function = scan.inventory.find(address);
    if (function == nullptr || !function->physical_function) return false;
    const vfio::PciFunction* gpu = scan.inventory.find(*function->physical_function);
    return gpu != nullptr && gpu->driver && std::ranges::find(kDrivers, *gpu->driver) != kDrivers.end();
  }

  /// The functions that VMs may have are VgpuGpu::functions_away, not vGPUs. A function that cannot be read
  /// has no type.
  void read_gpu(const HostScan& /*scan*/, VirtualFunctions functions, VgpuGpu& gpu) const override {
    const auto all = static_cast<std::uint32_t>(functions.size());
    for (const vfio::PciFunction* function : functions) {
      VgpuParent& parent = gpu.parents.emplace_back();
      parent.address = function->address;
      if (!function->problem) parent.types.push_back(type_of(*function, all));
    }
  }

  void read_devices(const HostFs& /*host*/, const vfio::Inventory& /*inventory*/, VgpuFacts /*facts*/,
                    VgpuGpu& /*gpu*/) const override {}

  bool exists(const HostFs& host, const VgpuDevice& device) const override {
    return host.exists(vfio::sysfs_path(device.parent));
  }

  Result<std::uint32_t> available_now(const HostFs& host, const vfio::PciAddress& parent,
                                      const std::string& type_id) const override {
    const auto function = vfio::read_function(host, parent);
    if (!function) return fail(Error(function.error()));
    if (function->problem) return fail(Error(*function->problem));
    return function->ids() == type_id && !vfio::on_vfio_driver(*function) ? 1U : 0U;
  }

  // No step has these writes, since makes_vgpus() is false: a function changes hands by its driver.
  AttributeWrite creation_write(const vfio::PciAddress& /*parent*/, const std::string& /*type_id*/,
                                const VgpuId& /*id*/) const override {
    return {};
  }
  AttributeWrite removal_write(const vfio::PciAddress& /*parent*/, const VgpuId& /*id*/) const override {
    return {};
  }
  AttributeWrite params_write(const vfio::PciAddress& /*parent*/, const VgpuId& /*id*/,
                              const std::string& /*params*/) const override {
    return {};
  }
  AttributeWrite placement_write(const vfio::PciAddress& /*parent*/, const VgpuId& /*id*/,
                                 std::uint32_t /*placement*/) const override {
    return {};
  }
};

}  // namespace

const Framework& whole_functions() {
  static const WholeFunctions framework;
  return framework;
}

}  // namespace ferry::mdev
