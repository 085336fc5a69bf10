// SPDX-License-Identifier: Apache-2.0
#include "mdev/mdev_bus.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "mdev/vfio_nodes.h"

namespace ferry::mdev {
namespace {

constexpr const char* kParents = "sys/class/mdev_bus";
constexpr const char* kDevices = "sys/bus/mdev/devices";

// NVIDIA's line: "num_heads=4, frl_config=60, framebuffer=2048M, max_resolution=7680x4320, max_instance=12".
// Other drivers write other lines; unknown parts are ignored.
void read_description(std::string_view line, VgpuType& type) {
  while (!line.empty()) {
    const std::string_view pair = trimmed(cut(line, ','));
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view value = pair.substr(equals + 1);
    if (pair.starts_with("max_instance=")) type.max_instances = number_at_start(value);
    if (pair.starts_with("framebuffer=") && value.ends_with('M'))
      type.framebuffer_mib = number_at_start(value);
  }
}

/// Types by owner and ID. The owner is the GPU, also for a type of its virtual functions, between which only
/// the availability differs.
using KnownTypes = std::map<std::pair<std::string, std::string>, VgpuType>;

Result<VgpuType> read_type(const HostFs& host, const std::filesystem::path& directory,
                           const std::string& owner, KnownTypes& known) {
  auto number = read_available(host, directory);
  if (!number) return fail(std::move(number).error());
  const std::pair<std::string, std::string> key = {owner, directory.filename()};
  auto found = known.find(key);
  if (found == known.end()) {
    VgpuType constants;
    constants.id = directory.filename();
    const auto name = host.read_attribute(directory / "name");
    // Kernels before 6.1 leave the file to the driver, so it may be absent. Any other failure is an error.
    if (!name && !is_gone(name.error())) return fail(name.error());
    constants.name = trimmed(name.value_or(""));
    if (constants.name.empty()) constants.name = constants.id;
    constants.short_name = last_word(constants.name);
    read_description(host.read_attribute(directory / "description").value_or(""), constants);
    found = known.emplace(key, std::move(constants)).first;
  }
  VgpuType type = found->second;
  type.available = *number;
  return type;
}

std::filesystem::path types_path(const vfio::PciAddress& parent) {
  return vfio::sysfs_path(parent) / "mdev_supported_types";
}

VgpuParent read_parent(const HostFs& host, const StuckGpus& stuck, const vfio::PciAddress& address,
                       KnownTypes& known) {
  VgpuParent parent{.address = address};
  if (stuck.contains(host, address)) {
    parent.problem = stuck_error(address);
    return parent;
  }
  const std::string owner = host.link_name(vfio::sysfs_path(address) / "physfn").value_or(address.text());
  auto names = host.list(types_path(address));
  if (!names) {
    if (!is_gone(names.error())) parent.problem = std::move(names).error();
    return parent;
  }
  parent.types.reserve(names->size());
  for (const std::string& name : *names) {
    auto type = read_type(host, type_path(address, name), owner, known);
    if (type) {
      parent.types.push_back(std::move(*type));
    } else if (!is_gone(type.error()) && !parent.problem) {
      parent.problem = std::move(type).error();
    }
  }
  // Type directories are named "<driver>-<number>"; text order would put nvidia-1153 before nvidia-222.
  std::ranges::sort(parent.types, {}, [](const VgpuType& type) {
    const std::string_view number = std::string_view(type.id).substr(type.id.find_last_of('-') + 1);
    return std::pair(number_at_start(number).value_or(0), type.id);
  });
  return parent;
}

Result<std::optional<std::string>> optional_link(const HostFs& host, const std::filesystem::path& path) {
  auto name = host.link_name(path);
  if (name) return std::optional<std::string>(std::move(*name));
  if (is_gone(name.error())) return std::optional<std::string>();
  return fail(std::move(name).error());
}

Result<VgpuDevice> read_device(const HostFs& host, VgpuFacts facts, const VgpuId& id,
                               const VgpuParent& parent) {
  VgpuDevice device;
  device.id = id;
  device.parent = parent.address;
  const auto path = vfio::sysfs_path(parent.address) / id.text;
  auto type = host.link_name(path / "mdev_type");
  if (!type) return fail(std::move(type).error());
  device.type_id = std::move(*type);

  const VgpuType* listed = parent.find(device.type_id);
  device.type_name = listed != nullptr ? listed->name : device.type_id;
  device.short_name = last_word(device.type_name);

  auto group = optional_link(host, path / "iommu_group");
  if (!group) return fail(std::move(group).error());
  if (const auto& name = *group) {
    device.iommu_group = whole_number(*name);
    if (!device.iommu_group) {
      return fail(Errc::malformed_host, fmt::format("/{}: no group is called {}", path.string(), *name));
    }
  }
  if (facts == VgpuFacts::identity) return device;

  auto driver = optional_link(host, path / "driver");
  if (!driver) return fail(std::move(driver).error());
  device.driver = std::move(*driver);
  // Without this error the vGPU would pass for one that no driver has taken, and be removed.
  if (device.driver && !device.iommu_group) {
    return fail(Errc::malformed_host, fmt::format("/{}: driver {} has taken it, and it is in no IOMMU group",
                                                  path.string(), *device.driver));
  }
  if (auto read = read_vfio_nodes(host, path, device); !read) return fail(std::move(read).error());
  // The attributes below are the driver's own: while a write to the GPU is stuck, reading one may hang.
  if (!parent.problem || parent.problem->code != Errc::stuck) read_nvidia_attributes(host, path, device);
  return device;
}

// A device that cannot be read sets the parent's problem: a count without it must not be acted on.
void read_device_into(const HostFs& host, VgpuFacts facts, const VgpuId& id, VgpuParent& parent,
                      std::vector<VgpuDevice>& into) {
  auto device = read_device(host, facts, id, parent);
  if (device) {
    into.push_back(std::move(*device));
  } else if (!is_gone(device.error()) && !parent.problem) {
    parent.problem = std::move(device).error();
  }
}

}  // namespace

Result<MdevBus> read_mdev_bus(const HostFs& host, const StuckGpus& stuck,
                              const std::set<vfio::PciAddress>* only) {
  MdevBus bus;
  KnownTypes known_types;
  const auto passed_over = [&](const vfio::PciAddress& address) {
    return only != nullptr && !only->contains(address);
  };
  auto parents = names_in(host, kParents);
  if (!parents) return fail(std::move(parents).error().during("scan mdev parents"));
  for (const std::string& name : *parents) {
    if (const auto address = vfio::PciAddress::parse(name)) {
      if (!passed_over(*address))
        bus.parents.emplace(*address, read_parent(host, stuck, *address, known_types));
    } else {
      bus.notes.push_back(fmt::format("mdev parent {} is no PCI function: passed over", name));
    }
  }

  auto devices = names_in(host, kDevices);
  if (!devices) return fail(std::move(devices).error().during("scan mediated devices"));
  for (const std::string& uuid : *devices) {
    const auto id = parse_mdev_uuid(uuid);
    const auto target = host.link_target(std::filesystem::path(kDevices) / uuid);
    if (!target && is_gone(target.error())) continue;  // removed since it was listed
    // The parent is the directory above the device: .../0000:17:00.0/<uuid>.
    const auto address =
        target ? vfio::PciAddress::parse(std::filesystem::path(*target).parent_path().filename().string())
               : fail(target.error());
    if (!id || !address) {
      bus.notes.push_back(fmt::format("mediated device {} is on no PCI function: passed over", uuid));
      continue;
    }
    if (passed_over(*address)) continue;
    auto& known = bus.parents.try_emplace(*address, VgpuParent{.address = *address}).first->second;
    read_device_into(host, VgpuFacts::all, *id, known, bus.devices);
  }
  std::ranges::sort(bus.devices, {},
                    [](const VgpuDevice& device) { return std::tie(device.parent, device.id); });
  return bus;
}

void read_mdev_devices(const HostFs& host, VgpuFacts facts, VgpuParent& parent,
                       std::vector<VgpuDevice>& into) {
  auto names = host.list(vfio::sysfs_path(parent.address));
  if (!names) {
    if (!is_gone(names.error()) && !parent.problem) parent.problem = std::move(names).error();
    return;
  }
  for (const std::string& name : *names) {  // sorted by name, and so are the devices
    if (const auto id = parse_mdev_uuid(name)) read_device_into(host, facts, *id, parent, into);
  }
}

std::filesystem::path type_path(const vfio::PciAddress& parent, const std::string& type_id) {
  return types_path(parent) / type_id;
}

Result<std::uint32_t> read_available(const HostFs& host, const std::filesystem::path& type) {
  const auto path = type / "available_instances";
  auto text = host.read_attribute(path);
  if (!text) return fail(std::move(text).error());
  if (const auto number = number_at_start(*text)) return *number;
  return fail(Errc::malformed_host, fmt::format("/{}: '{}' is not a number", path.string(), *text));
}

}  // namespace ferry::mdev
