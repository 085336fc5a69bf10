// SPDX-License-Identifier: Apache-2.0
#include "mdev/vgpu.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "vfio/pci/inventory.h"

namespace ferry::mdev {

Result<VgpuId> parse_mdev_uuid(std::string_view text) {
  constexpr std::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  const bool well_formed =
      std::equal(text.begin(), text.end(), kForm.begin(), kForm.end(), [](char c, char form) {
        return form == '-' ? c == '-' : std::isxdigit(static_cast<unsigned char>(c)) != 0;
      });
  if (!well_formed) {
    return fail(Errc::usage, fmt::format("'{}' is not a UUID", text),
                "write it as 5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
  }
  return VgpuId{.text = lower(text)};
}

const VgpuType* VgpuParent::find(std::string_view type_id) const {
  const auto found = std::ranges::find(types, type_id, &VgpuType::id);
  return found == types.end() ? nullptr : &*found;
}

std::uint32_t VgpuParent::available(std::string_view type_id) const {
  const VgpuType* const type = find(type_id);
  return type == nullptr ? 0 : type->available;
}

const Error* VgpuGpu::problem() const {
  for (const VgpuParent& parent : parents)
    if (parent.problem) return &*parent.problem;
  return nullptr;
}

std::string VgpuGpu::label() const {
  return fmt::format("GPU {} ({})", index, function.address.text());
}

bool VgpuGpu::on_virtual_functions() const {
  return framework->makes_vgpus() && framework->on_virtual_functions();
}

bool VgpuGpu::on_itself() const {
  return framework->makes_vgpus() && !framework->on_virtual_functions();
}

namespace {

bool is_without_types(const VgpuGpu& gpu) {
  return !gpu.framework->makes_vgpus() && !gpu.function.problem && gpu.function.driver &&
         !vfio::on_vfio_driver(gpu.function) && gpu.host_driver;
}

}  // namespace

bool VgpuGpu::may_get_virtual_functions() const {
  return is_without_types(*this) && devices.empty() && !never_has_functions && function.sriov_totalvfs > 0 &&
         function.sriov_numvfs == 0;
}

bool VgpuGpu::awaits_types() const {
  return is_without_types(*this) && never_has_functions;
}

bool VgpuGpu::offers_nothing() const {
  if (is_without_types(*this)) return !may_get_virtual_functions() && !awaits_types();
  return framework->lists_only_creatable_types() && devices.empty() &&
         std::ranges::all_of(
             parents, [](const VgpuParent& parent) { return parent.types.empty() && !parent.problem; });
}

std::string reason_for_no_types(const VgpuGpu& gpu) {
  constexpr const char* kMigFirst =
      "in MIG mode it first needs GPU instances, which `ferry vgpu apply` makes for MIG-backed types; else ";
  return fmt::format(
      "{}this release of the vGPU host driver knows no types for board {}, or its edition or licence "
      "has none: `nvidia-smi vgpu -s` lists the types that it knows",
      gpu.framework->makes_vgpus() ? kMigFirst : "", gpu.function.ids());
}

const VgpuGpu* VgpuInventory::find(const vfio::PciAddress& address) const {
  const auto found = std::ranges::find(gpus, address, &VgpuGpu::address);
  return found == gpus.end() ? nullptr : &*found;
}

const VgpuDevice* VgpuInventory::find(const VgpuId& id) const {
  for (const VgpuGpu& gpu : gpus)
    for (const VgpuDevice& device : gpu.devices)
      if (device.id == id) return &device;
  return nullptr;
}

}  // namespace ferry::mdev
