// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/sysfs_check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <iterator>
#include <sstream>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "kubevirt-plugin/device_nodes.h"
#include "mdev/vendor_vfio.h"

namespace ferry {
namespace {

bool is_vendor(const Result<std::string>& text, const OfferRules& rules) {
  return text && std::any_of(rules.accelerators.vendors.begin(), rules.accelerators.vendors.end(),
                             [&](std::uint16_t vendor) { return *text == fmt::format("{:#06x}", vendor); });
}

/// The members of a group with as few reads as will do: a scan reads far more of each. The driver of `own`
/// has been judged.
Result<std::vector<GroupMember>> read_members(const HostFs& host, std::uint32_t group, std::string_view own,
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
    PciFunction function;
    if (driver) function.driver = *driver;
    function.vfio_devices = vfio_devices;
    GroupMember member{.address = *address,
                       .driver = driver.value_or(""),
                       .usable = name == own || !blocks_viability(function),
                       .vfio_device = {}};
    if (!vfio_devices.empty() && is_vendor(host.read_attribute(path / "vendor"), rules))
      member.vfio_device = vfio_devices.front();
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

// The first two bytes are its vendor, of a virtual function all ones; the header type is in the fifteenth.
Result<> expect_on_the_bus(const HostFs& host, const std::filesystem::path& path) {
  std::array<char, 16> header{};
  const auto config = host.open(path / "config", O_RDONLY);
  if (!config) return fail(config.error());
  const ssize_t size = ::pread(config->get(), header.data(), header.size(), 0);
  if (size < 0) return fail(error_from_errno(errno, "read /" + (path / "config").string()));
  if (std::all_of(header.begin(), header.begin() + size, [](char c) { return c == '\xff'; }))
    return fail(Errc::malformed_host, "its config space reads all ones: it is off the bus");
  return {};
}

Result<std::string> vgpu_type_now(const HostFs& host, const PciAddress& function) {
  auto text = host.read_attribute(current_type_path(function));
  if (!text) return fail(std::move(text).error());
  return std::string(text->substr(0, text->find_last_not_of(" \t") + 1));
}

Result<> expect_same_kind(const HostFs& host, const OfferedDevice& offered,
                          const std::filesystem::path& path) {
  switch (offered.kind) {
    case DeviceKind::pci_function:
    case DeviceKind::kata_function:
      if (auto same = expect("its model", ids_now(host, path), offered.model); !same) return same;
      return expect_on_the_bus(host, path);
    case DeviceKind::mediated_device:
      return expect("its model", type_now(host, path), offered.model);
    case DeviceKind::vendor_vgpu:
      break;
  }
  const auto address = PciAddress::parse(offered.id);
  if (!address) return fail(address.error());
  return expect("its vGPU type", vgpu_type_now(host, *address), offered.vgpu_type);
}

// Another binding may have given its number to another function.
std::vector<std::string> kata_nodes_now(const HostFs& host, const OfferedDevice& offered) {
  const auto path = std::filesystem::path("sys/bus/pci/devices") / offered.host_name() / "vfio-dev";
  auto key = kata_key(host, offered.iommu_group, host.list(path).value_or(std::vector<std::string>{}));
  return key.id == offered.id ? std::move(key.nodes) : std::vector<std::string>();
}

std::optional<std::uint32_t> group_number(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

bool is_uuid(std::string_view text) {
  constexpr std::size_t kLength = 36;
  return text.size() == kLength &&
         text.find_first_not_of("0123456789abcdefABCDEF-") == std::string_view::npos;
}

}  // namespace

Result<std::vector<std::string>> SysfsCheck::nodes_now(const OfferedDevice& offered) const {
  const bool is_mediated = offered.kind == DeviceKind::mediated_device;
  const auto path = std::filesystem::path(is_mediated ? "sys/bus/mdev/devices" : "sys/bus/pci/devices") /
                    offered.host_name();
  if (auto same = expect_same_kind(host_, offered, path); !same) return fail(std::move(same).error());
  if (auto same = expect("its IOMMU group", host_.link_name(path / "iommu_group"),
                         std::to_string(offered.iommu_group));
      !same)
    return fail(std::move(same).error());
  if (!offered.driver.empty()) {
    if (auto same = expect("its driver", host_.link_name(path / "driver"), offered.driver); !same)
      return fail(std::move(same).error());
  }

  std::vector<GroupMember> members;
  if (!is_mediated) {
    // A virtual function stays on its vendor's driver, whether or not that shows as one of vfio's.
    auto read =
        read_members(host_, offered.iommu_group,
                     offered.kind == DeviceKind::vendor_vgpu ? offered.id : std::string_view(), rules_);
    if (!read) return fail(std::move(read).error());
    members = std::move(*read);
    if (auto problem = group_problem(offered.iommu_group, members); !problem.empty())
      return fail(Errc::refused, std::move(problem));
  }
  auto nodes = offered.kind == DeviceKind::kata_function ? kata_nodes_now(host_, offered)
                                                         : vfio_nodes(host_, offered.iommu_group, members);
  if (nodes.empty()) return fail(Errc::not_found, missing_nodes(offered.iommu_group));
  return nodes;
}

std::vector<std::string> SysfsCheck::shared_nodes(std::span<const OfferedDevice> devices) const {
  std::vector<std::string> nodes;
  for (const auto& name : host_.list("sys/class/egm").value_or(std::vector<std::string>{})) {
    if (!name.starts_with("egm")) continue;
    const auto text = host_.read_attribute("sys/class/egm/" + name + "/gpu_devices").value_or("");
    std::istringstream words(text);
    const std::vector<std::string> gpus{std::istream_iterator<std::string>(words), {}};
    const bool all = std::ranges::all_of(gpus, [&](const std::string& gpu) {
      const auto address = PciAddress::parse(gpu);
      return address && std::ranges::any_of(devices, [&](const OfferedDevice& device) {
               return device.host_name() == address->text();
             });
    });
    if (all && !gpus.empty()) nodes.push_back("/dev/" + name);
  }
  return nodes;
}

std::optional<std::uint32_t> SysfsCheck::group_of(std::string_view id) const {
  const auto linked = [&](const std::filesystem::path& device) {
    return group_number(host_.link_name(device / "iommu_group").value_or(""));
  };
  if (const auto address = PciAddress::parse(id)) return linked(sysfs_path(*address));
  if (is_uuid(id)) return linked(std::filesystem::path("sys/bus/mdev/devices") / id);
  const auto number = group_number(id);
  if (!number) return std::nullopt;
  // As kata_key() makes it: by the function's own node where the host has them, by the group elsewhere.
  if (host_.exists("dev/iommu"))
    if (const auto own = linked(fmt::format("sys/class/vfio-dev/vfio{}/device", *number))) return own;
  return host_.exists(fmt::format("sys/kernel/iommu_groups/{}", *number)) ? number : std::nullopt;
}

bool SysfsCheck::is_open(std::uint32_t group) const {
  const auto node = host_.open(fmt::format("dev/vfio/{}", group), O_RDWR);
  return !node && node.error().code == std::errc::device_or_resource_busy;
}

}  // namespace ferry
