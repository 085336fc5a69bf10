// SPDX-License-Identifier: Apache-2.0
#include "mdev/vendor_vfio.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "mdev/framework.h"
#include "mdev/vfio_nodes.h"

namespace ferry::mdev {
namespace {

std::filesystem::path attribute(const vfio::PciAddress& function, const char* name) {
  return vfio::sysfs_path(function) / "nvidia" / name;
}

std::optional<VgpuType> type_of(std::string_view id, std::string_view name) {
  const auto number = whole_number(id);
  if (!number || *number == 0 || name.empty()) return std::nullopt;
  return VgpuType{.id = std::to_string(*number),
                  .name = std::string(name),
                  .short_name = last_word(name),
                  .available = 1};
}

std::optional<VgpuType> parse_line(std::string_view line) {
  constexpr std::string_view kBlank = " \t";
  // Only the first colon separates: a name may contain another.
  const auto colon = line.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view id = trimmed(line.substr(0, colon));
    if (whole_number(id)) return type_of(id, trimmed(line.substr(colon + 1)));
  }
  const auto first = line.find_first_of(kBlank);
  if (first == std::string_view::npos) return std::nullopt;
  // A number in front is tried before a number at the end, since a consumer card's name ends in a number too.
  if (auto type = type_of(line.substr(0, first), trimmed(line.substr(first)))) return type;
  if (colon != std::string_view::npos) return std::nullopt;
  const auto last = line.find_last_of(kBlank);
  return type_of(line.substr(last + 1), trimmed(line.substr(0, last)));
}

// Absent: the file holds 0, or the empty text that some releases show before the first vGPU.
Result<std::optional<std::string>> read_current_type(const HostFs& host, const vfio::PciAddress& function) {
  const auto path = current_type_path(function);
  auto text = host.read_attribute(path);
  if (!text) return fail(std::move(text).error());
  const std::string_view number = trimmed(*text);
  if (number.empty()) return std::optional<std::string>();
  const auto id = whole_number(number);
  if (!id) {
    return fail(Errc::malformed_host, fmt::format("/{}: '{}' is not a number", path.string(), *text));
  }
  return *id == 0 ? std::optional<std::string>() : std::to_string(*id);
}

/// The types that a function can create now.
Result<std::vector<VgpuType>> read_creatable_types(const HostFs& host, const vfio::PciAddress& function) {
  return host.read_attribute(attribute(function, "creatable_vgpu_types")).map(parse_creatable_types);
}

/// The vGPU on a function, named by its id; absent: none. Errors: those of reading the host's files.
Result<std::optional<VgpuDevice>> read_vendor_device(const HostFs& host, VgpuFacts facts,
                                                     const vfio::PciFunction& function) {
  auto current = read_current_type(host, function.address);
  if (!current) return fail(std::move(current).error());
  const auto& id = *current;
  if (!id) return std::optional<VgpuDevice>();
  // The problem may be an unreadable IOMMU group, without which the vGPU's users cannot be found.
  if (function.problem) return fail(*function.problem);
  VgpuDevice device;
  device.id.text = function.address.text();
  device.parent = function.address;
  device.type_id = *id;
  device.type_name = *id;
  device.short_name = *id;
  device.iommu_group = function.iommu_group;
  device.driver = function.driver;
  if (facts == VgpuFacts::identity) return device;
  const auto path = vfio::sysfs_path(function.address);
  if (auto read = read_vfio_nodes(host, path, device); !read) return fail(std::move(read).error());
  read_nvidia_attributes(host, path, device);
  return device;
}

}  // namespace

std::vector<VgpuType> parse_creatable_types(std::string_view text) {
  std::vector<VgpuType> out;
  while (!text.empty()) {
    auto type = parse_line(trimmed(cut(text, '\n')));
    if (type && std::ranges::find(out, type->id, &VgpuType::id) == out.end()) out.push_back(std::move(*type));
  }
  return out;
}

void read_vendor_function(const HostFs& host, const vfio::PciFunction& function, VgpuGpu& gpu) {
  VgpuParent& parent = gpu.parents.emplace_back();
  parent.address = function.address;
  auto device = read_vendor_device(host, VgpuFacts::all, function);
  if (!device) {
    parent.problem = std::move(device).error();
    return;
  }
  if (*device) gpu.devices.push_back(std::move(**device));
  auto types = read_creatable_types(host, function.address);
  if (types) {
    parent.types = std::move(*types);
  } else {
    parent.problem = std::move(types).error();
  }
  std::ranges::sort(parent.types, {}, [](const VgpuType& type) { return whole_number(type.id); });
}

std::filesystem::path current_type_path(const vfio::PciAddress& function) {
  return attribute(function, "current_vgpu_type");
}

namespace {

// Names vGPUs by the types of the GPU's other functions, since a function with a vGPU lists no type, not even
// that one. The number of a type is never looked up on another GPU.
void name_by_siblings(VgpuGpu& gpu) {
  std::map<std::string, const VgpuType*> listed;
  for (const VgpuParent& parent : gpu.parents) {
    for (const VgpuType& type : parent.types) listed.emplace(type.id, &type);
  }
  for (VgpuDevice& device : gpu.devices) {
    const auto type = listed.find(device.type_id);
    if (type == listed.end()) continue;
    device.type_name = type->second->name;
    device.short_name = type->second->short_name;
  }
}

class VendorVfio final : public Framework {
 public:
  VendorVfio()
      : Framework({.name = "vendor-specific VFIO",
                   .on_virtual_functions = true,
                   .lists_only_creatable_types = true,
                   .kernel_lists_devices = false,
                   .refuses_removal_in_use = true}) {}

  bool is_parent(const HostScan& scan, const vfio::PciAddress& function) const override {
    return scan.host.exists(current_type_path(function));
  }

  void read_gpu(const HostScan& scan, VirtualFunctions functions, VgpuGpu& gpu) const override {
    for (const vfio::PciFunction* function : functions) {
      if (!is_parent(scan, function->address)) continue;  // on another driver, or on none
      if (scan.stuck.contains(scan.host, function->address)) {
        gpu.parents.push_back({.address = function->address, .problem = stuck_error(function->address)});
        continue;
      }
      read_vendor_function(scan.host, *function, gpu);
    }
    name_by_siblings(gpu);
  }

  void read_devices(const HostFs& host, const vfio::Inventory& inventory, VgpuFacts facts,
                    VgpuGpu& gpu) const override {
    for (VgpuParent& parent : gpu.parents) {
      const vfio::PciFunction* function = inventory.find(parent.address);
      if (function == nullptr || (parent.problem && parent.problem->code == Errc::stuck)) continue;
      auto device = read_vendor_device(host, facts, *function);
      if (!device) {
        parent.problem = std::move(device).error();
      } else if (*device) {
        gpu.devices.push_back(std::move(**device));
      }
    }
    name_by_siblings(gpu);
  }

  bool exists(const HostFs& host, const VgpuDevice& device) const override {
    const auto type = read_current_type(host, device.parent);
    return type ? type->has_value() : !is_gone(type.error());
  }

  Result<std::uint32_t> available_now(const HostFs& host, const vfio::PciAddress& parent,
                                      const std::string& type_id) const override {
    auto types = read_creatable_types(host, parent);
    if (!types) return fail(std::move(types).error());
    return std::ranges::find(*types, type_id, &VgpuType::id) == types->end() ? 0U : 1U;
  }

  AttributeWrite creation_write(const vfio::PciAddress& parent, const std::string& type_id,
                                const VgpuId& /*id*/) const override {
    return {.path = current_type_path(parent), .value = type_id, .only_if_unset = true};
  }
  AttributeWrite removal_write(const vfio::PciAddress& parent, const VgpuId& /*id*/) const override {
    return {.path = current_type_path(parent), .value = "0"};
  }
  Result<std::vector<AttributeWrite>> params_writes(const HostFs& /*host*/, const vfio::PciAddress& parent,
                                                    const VgpuId& /*id*/,
                                                    const std::string& params) const override {
    return std::vector{AttributeWrite{.path = attribute(parent, "vgpu_params"), .value = params}};
  }
  AttributeWrite placement_write(const vfio::PciAddress& parent, const VgpuId& /*id*/,
                                 std::uint32_t placement) const override {
    return {.path = attribute(parent, "placement_id"), .value = std::to_string(placement)};
  }
};

}  // namespace

const Framework& vendor_vfio() {
  static const VendorVfio framework;
  return framework;
}

}  // namespace ferry::mdev
