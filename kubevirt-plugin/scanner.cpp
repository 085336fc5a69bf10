// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/scanner.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "kubevirt-plugin/device_nodes.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/inventory.h"

namespace ferry {
namespace {

// KubeVirt reads PCI addresses of exactly four domain digits (VMD and Hyper-V have more).
constexpr std::uint32_t kLastDomain = 0xffff;

GroupMember member_of_group(const PciFunction& function, const OfferRules& rules) {
  const bool vfio = on_vfio_driver(function);
  const bool ours = vfio && rules.accelerators.vendors.contains(function.vendor);
  return {
      .address = function.address,
      .driver = function.driver.value_or(""),
      .usable = vfio || !function.driver || function.is_bridge(),
      .vfio_device = ours && !function.vfio_devices.empty() ? function.vfio_devices.front() : std::string()};
}

/// Collects devices under names, and what is to be said of them.
class Assembly {
 public:
  explicit Assembly(std::string domain) : domain_(std::move(domain)) {}

  void refuse(std::string id, std::string reason) {
    offer_.not_offered.push_back({.id = std::move(id), .reason = std::move(reason)});
  }

  /// `fallback` is taken where `part` makes no legal name; none: the device is not offered then.
  void add(OfferedDevice device, const std::string& part, const std::string& fallback, EnvPrefix prefix) {
    auto name = ResourceName::parse(domain_ + "/" + part);
    if (!name && !fallback.empty()) {
      warn(part.empty()
               ? fmt::format("{} has no name; it is offered as {}/{}", device.model, domain_, fallback)
               : fmt::format("{}; it is offered as {}/{}", name.error().message, domain_, fallback));
      name = ResourceName::parse(domain_ + "/" + fallback);
    }
    if (!name) {
      refuse(device.id, name.error().message);
      return;
    }
    auto& resource =
        resources_.try_emplace(*name, Resource{.name = *name, .env_prefix = prefix, .devices = {}})
            .first->second;
    // virt-launcher takes one address for each entry from either kind of variable: a resource has one kind.
    if (resource.env_prefix != prefix) {
      refuse(device.id, fmt::format("{} names whole functions and mediated devices alike", name->text()));
      return;
    }
    resource.devices.push_back(std::move(device));
  }

  Offer finish() && {
    std::map<std::string, std::string> env_names;  // env name -> resource
    for (auto& [name, resource] : resources_) {
      const auto [entry, is_new] = env_names.emplace(env_name(resource.env_prefix, name), name.text());
      if (!is_new) {
        warn(fmt::format("{} is not offered: KubeVirt cannot tell it from {}", name.text(), entry->second));
        for (const auto& device : resource.devices)
          refuse(device.id, fmt::format("KubeVirt cannot tell {} from {}", name.text(), entry->second));
        continue;
      }
      std::sort(resource.devices.begin(), resource.devices.end(),
                [](const OfferedDevice& a, const OfferedDevice& b) { return a.id < b.id; });
      offer_.resources.push_back(std::move(resource));
    }
    return std::move(offer_);
  }

 private:
  void warn(std::string text) {
    if (std::find(offer_.warnings.begin(), offer_.warnings.end(), text) == offer_.warnings.end())
      offer_.warnings.push_back(std::move(text));
  }

  std::string domain_;
  std::map<ResourceName, Resource> resources_;
  Offer offer_;
};

bool is_offered_kind(const PciFunction& function, const OfferRules& rules) {
  return rules.accelerators.match(function) ||
         (rules.companions && rules.accelerators.vendors.contains(function.vendor) && !function.is_bridge() &&
          !function.is_virtual_function());
}

void add_function(const HostFs& host, const OfferRules& rules, const Inventory& inventory,
                  const PciFunction& function, DeviceNames& names, Assembly& assembly) {
  const std::string id = function.address.text();
  if (function.problem) return assembly.refuse(id, function.problem->message);
  if (!function.iommu_group) return assembly.refuse(id, "it has no IOMMU group");
  if (function.address.domain > kLastDomain)
    return assembly.refuse(id, "KubeVirt reads addresses of four domain digits only");

  std::vector<GroupMember> members;
  for (const auto& address : inventory.group_of(function))
    if (const auto* const member = inventory.find(address))
      members.push_back(member_of_group(*member, rules));
  if (auto problem = group_problem(*function.iommu_group, members); !problem.empty())
    return assembly.refuse(id, std::move(problem));

  OfferedDevice device{.id = id,
                       .kind = DeviceKind::pci_function,
                       .model = function.ids(),
                       .driver = function.driver.value_or(""),
                       .iommu_group = *function.iommu_group,
                       .numa_node = function.numa_node,
                       .nodes = vfio_nodes(host, *function.iommu_group, members),
                       .problem = {}};
  if (device.nodes.empty()) device.problem = missing_nodes(device.iommu_group);
  const auto part = pci_resource_part(names.find(function.vendor, function.device).value_or(""));
  assembly.add(std::move(device), part, fmt::format("{:04x}", function.device), EnvPrefix::pci_resource);
}

void add_vgpu(const HostFs& host, const Inventory& inventory, const VgpuDevice& vgpu, Assembly& assembly) {
  if (!vgpu.iommu_group) return assembly.refuse(vgpu.id.text, "no VFIO driver has taken it: no IOMMU group");
  const auto* const parent = inventory.find(vgpu.parent);
  OfferedDevice device{.id = vgpu.id.text,
                       .kind = DeviceKind::mediated_device,
                       .model = vgpu.type_name,
                       .driver = vgpu.driver.value_or(""),
                       .iommu_group = *vgpu.iommu_group,
                       .numa_node = parent != nullptr ? parent->numa_node : std::nullopt,
                       .nodes = vfio_nodes(host, *vgpu.iommu_group, {}),
                       .problem = {}};
  if (device.nodes.empty()) device.problem = missing_nodes(device.iommu_group);
  assembly.add(std::move(device), mdev_resource_part(vgpu.type_name), {}, EnvPrefix::mdev_pci_resource);
}

bool is_vendor(const Result<std::string>& text, const OfferRules& rules) {
  return text && std::any_of(rules.accelerators.vendors.begin(), rules.accelerators.vendors.end(),
                             [&](std::uint16_t vendor) { return *text == fmt::format("{:#06x}", vendor); });
}

/// The members of a group with as few reads as will do: a scan reads far more of each.
Result<std::vector<GroupMember>> read_members(const HostFs& host, std::uint32_t group,
                                              const OfferRules& rules) {
  auto names = host.list(fmt::format("sys/kernel/iommu_groups/{}/devices", group));
  if (!names) return fail(std::move(names).error());
  std::vector<GroupMember> members;
  for (const auto& name : *names) {
    const auto address = PciAddress::parse(name);
    if (!address) continue;
    const auto path = sysfs_path(*address);
    auto driver = host.link_name(path / "driver");
    if (!driver && !is_gone(driver.error())) return fail(std::move(driver).error());
    const auto vfio_devices = host.list(path / "vfio-dev").value_or(std::vector<std::string>{});
    GroupMember member{.address = *address, .driver = driver.value_or(""), .usable = true, .vfio_device = {}};
    if (!vfio_devices.empty()) {
      if (is_vendor(host.read_attribute(path / "vendor"), rules)) member.vfio_device = vfio_devices.front();
    } else if (driver && *driver != "vfio-pci") {
      const auto function = read_function(host, *address);
      member.usable = function && function->is_bridge();
    }
    members.push_back(std::move(member));
  }
  std::sort(members.begin(), members.end(),
            [](const GroupMember& a, const GroupMember& b) { return a.address < b.address; });
  return members;
}

Result<> expect(std::string_view what, Result<std::string> now, const std::string& then) {
  if (!now) return fail(std::move(now).error().during(fmt::format("{} was {}", what, then)));
  if (*now != then) return fail(Errc::differs, fmt::format("{} is {} now and was {}", what, *now, then));
  return {};
}

Result<std::string> ids_now(const HostFs& host, const std::filesystem::path& path) {
  auto vendor = host.read_attribute(path / "vendor");
  if (!vendor) return fail(std::move(vendor).error());
  auto device = host.read_attribute(path / "device");
  if (!device) return fail(std::move(device).error());
  const auto digits = [](const std::string& text) { return text.starts_with("0x") ? text.substr(2) : text; };
  return digits(*vendor) + ":" + digits(*device);
}

// As mdev/ reads it: by the driver's name for it, or else the directory's.
Result<std::string> type_now(const HostFs& host, const std::filesystem::path& path) {
  if (auto name = host.read_attribute(path / "mdev_type/name"); name && !name->empty()) return name;
  return host.link_name(path / "mdev_type");
}

}  // namespace

Result<Offer> scan_offer(const HostFs& host, const OfferRules& rules, DeviceNames& names) {
  const auto inventory = scan(host);
  if (!inventory) return fail(inventory.error());
  Assembly assembly(rules.domain);
  for (const auto& [address, function] : inventory->functions) {
    if (is_offered_kind(function, rules) && on_vfio_driver(function))
      add_function(host, rules, *inventory, function, names, assembly);
  }
  const auto vgpus = scan_vgpus(host, *inventory, rules.accelerators);
  if (!vgpus) return fail(vgpus.error());
  for (const auto& gpu : vgpus->gpus) {
    for (const auto& vgpu : gpu.devices) {
      if (gpu.framework == VgpuFramework::vendor_vfio) {
        assembly.refuse(vgpu.id.text, "vGPUs of vendor-specific VFIO are not offered yet");
      } else {
        add_vgpu(host, *inventory, vgpu, assembly);
      }
    }
  }
  return std::move(assembly).finish();
}

Result<std::vector<std::string>> SysfsCheck::nodes_now(const OfferedDevice& offered) const {
  const bool is_function = offered.kind == DeviceKind::pci_function;
  const auto path =
      std::filesystem::path(is_function ? "sys/bus/pci/devices" : "sys/bus/mdev/devices") / offered.id;
  if (auto same =
          expect("its model", is_function ? ids_now(host_, path) : type_now(host_, path), offered.model);
      !same)
    return fail(std::move(same).error());
  if (auto same = expect("its IOMMU group", host_.link_name(path / "iommu_group"),
                         std::to_string(offered.iommu_group));
      !same)
    return fail(std::move(same).error());
  if (!offered.driver.empty()) {
    if (auto same = expect("its driver", host_.link_name(path / "driver"), offered.driver); !same)
      return fail(std::move(same).error());
  }

  std::vector<GroupMember> members;
  if (is_function) {
    auto read = read_members(host_, offered.iommu_group, rules_);
    if (!read) return fail(std::move(read).error());
    members = std::move(*read);
    if (auto problem = group_problem(offered.iommu_group, members); !problem.empty())
      return fail(Errc::refused, std::move(problem));
  }
  auto nodes = vfio_nodes(host_, offered.iommu_group, members);
  if (nodes.empty()) return fail(Errc::not_found, missing_nodes(offered.iommu_group));
  return nodes;
}

}  // namespace ferry
