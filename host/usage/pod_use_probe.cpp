// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/text/text.h"
#include "host/usage/use_probes.h"
#include "vfio/pci/inventory.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

// NVIDIA's plugins use this domain for all their resources, whatever the configuration.
constexpr std::string_view kNumberingDomain = "nvidia.com/";

/// The resources whose numeric IDs are numbers of groups or vfio devices.
std::set<std::string> numbering_resources(const HostFs& host, const std::vector<vfio::PodDevice>& given) {
  std::set<std::string> numbering;
  std::set<std::string> others;
  for (const vfio::PodDevice& device : given) {
    const bool all_groups = std::ranges::all_of(device.ids, [&](const std::string& id) {
      return whole_number(id) && host.exists(fs::path("sys/class/vfio") / id);
    });
    (all_groups || device.resource.starts_with(kNumberingDomain) ? numbering : others)
        .insert(device.resource);
  }
  for (const std::string& resource : others) numbering.erase(resource);
  return numbering;
}

struct Given {
  std::set<std::string> devices;  ///< PCI addresses and UUIDs, in lower case
  std::set<std::uint32_t> groups;
  vfio::DeviceUser to;
};

class Host {
 public:
  // A host without a PCI bus has no groups either.
  explicit Host(const HostFs& host)
      : host_(&host), inventory_(vfio::scan(host).value_or(vfio::Inventory{})) {}

  Given given(const vfio::PodDevice& device, bool numbers) const {
    Given out{.devices = {},
              .groups = {},
              .to = {.kind = vfio::DeviceUser::Kind::pod,
                     .name = fmt::format("{}/{}", device.name_space, device.pod),
                     .what = device.resource + " (allocated by the kubelet)"}};
    for (const std::string& id : device.ids) {
      if (const auto address = vfio::PciAddress::parse(id)) {
        out.devices.insert(address->text());
        add_group(inventory_.find(*address), out);
      } else if (const auto number = whole_number(id)) {
        if (!numbers) continue;
        out.groups.insert(*number);
        for (const auto& [member, function] : inventory_.functions) {
          if (std::ranges::find(function.vfio_devices, "vfio" + id) == function.vfio_devices.end()) continue;
          out.devices.insert(member.text());
          add_group(&function, out);
        }
      } else {
        out.devices.insert(lower(id));
      }
    }
    return out;
  }

  /// The IOMMU group of a PCI function or a mediated device.
  std::optional<std::uint32_t> group_of(const std::string& device) const {
    if (const auto address = vfio::PciAddress::parse(device)) {
      const vfio::PciFunction* function = inventory_.find(*address);
      return function == nullptr ? std::nullopt : function->iommu_group;
    }
    return whole_number(
        host_->link_name(fs::path("sys/bus/mdev/devices") / device / "iommu_group").value_or(""));
  }

 private:
  static void add_group(const vfio::PciFunction* function, Given& out) {
    if (function != nullptr && function->iommu_group) out.groups.insert(*function->iommu_group);
  }

  const HostFs* host_;
  vfio::Inventory inventory_;
};

}  // namespace

Result<vfio::UseReport> pod_users(const HostFs& host, const ListPodDevices& list_devices,
                                  KubeletSilence silence, std::span<const vfio::UseQuestion> questions) {
  vfio::UseReport report;
  if (questions.empty()) return report;
  const auto list = list_devices();
  if (!list) {
    report.unknown.push_back("pod resources: " + list.error().message);
    if (silence == KubeletSilence::blinds) report.blind = report.unknown.back();
  }
  if (!list || list->empty()) return report;

  const Host groups(host);
  const auto numbering = numbering_resources(host, *list);
  std::vector<Given> all;
  all.reserve(list->size());
  for (const vfio::PodDevice& device : *list)
    all.push_back(groups.given(device, numbering.contains(device.resource)));
  for (const vfio::UseQuestion& question : questions) {
    const std::string device = lower(question.device);
    const auto group = groups.group_of(device);
    std::vector<vfio::DeviceUser> users;
    for (const Given& given : all) {
      const bool has_it = given.devices.contains(device) || (group && given.groups.contains(*group));
      // An init container and the pod's other containers share a device; it is listed once.
      if (has_it && std::ranges::find(users, given.to) == users.end()) users.push_back(given.to);
    }
    if (!users.empty()) report.users.emplace(question.device, std::move(users));
  }
  return report;
}

}  // namespace ferry::host
