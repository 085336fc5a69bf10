// SPDX-License-Identifier: Apache-2.0
#include "cli/output/explanation_parts.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {

std::string driver_text(const std::optional<std::string>& driver) {
  return driver ? "driver " + *driver : "no driver";
}

void add_place(Explanation& out, const ExplainInputs& inputs, const vfio::PciFunction& function) {
  const auto known = inputs.places.find(function.address);
  const vfio::DevicePlace place = known == inputs.places.end() ? vfio::DevicePlace{} : known->second;
  out.add("place", fmt::format("{}, {}", place.slot ? "slot " + *place.slot : "no named slot",
                               function.numa_node ? fmt::format("NUMA node {}", *function.numa_node)
                                                  : std::string("no NUMA node is known")));
  if (!place.above.empty()) out.add("place", fmt::format("below {}", fmt::join(place.above, " > ")));
}

void add_group(Explanation& out, const ExplainInputs& inputs, const vfio::PciFunction& function) {
  const vfio::Inventory& inventory = inputs.snapshot.inventory;
  if (!function.iommu_group) {
    const auto& none = inputs.description.no_iommu;
    out.add("group", none ? "none: " + none->message : "none: no IOMMU handles it", Tint::bad);
    if (none && !none->hint.empty()) out.add("group", "hint: " + none->hint, Tint::dim);
    return;
  }
  const auto members = inventory.group_of(function);
  // Without a member on vfio no other member blocks the group.
  const bool given = std::ranges::any_of(members, [&](const vfio::PciAddress& address) {
    return vfio::on_vfio_driver(*inventory.find(address));
  });
  const auto blockers =
      given ? vfio::viability_blockers(inventory, *function.iommu_group) : std::vector<vfio::PciAddress>{};
  out.add("group", fmt::format("IOMMU group {}, {}", *function.iommu_group,
                               members.size() == 1 ? "alone in it" : counted(members.size(), "member")));
  if (members.size() == 1) return;
  for (const vfio::PciAddress& address : members) {
    const vfio::PciFunction& member = *inventory.find(address);
    const bool blocks = std::ranges::find(blockers, address) != blockers.end();
    out.add("group", fmt::format("{}  {}, {}{}", address.text(), vfio::kind_of(member),
                                 driver_text(member.driver), blocks ? ": keeps the group from VMs" : ""));
  }
}

namespace {

std::optional<double> gigatransfers(const std::optional<std::string>& speed) {
  if (!speed) return std::nullopt;
  double value = 0;
  const char* const end = speed->data() + speed->size();
  if (std::from_chars(speed->data(), end, value).ec != std::errc()) return std::nullopt;
  return value;
}

std::string link_text(const std::optional<std::string>& speed, const std::optional<unsigned>& width) {
  std::string text = speed ? speed->substr(0, speed->find(" PCIe")) : "speed not known";
  if (width) text += fmt::format(" x{}", *width);
  return text;
}

}  // namespace

ExplanationLine link_line(const vfio::LinkFacts& link) {
  if (!link.current_speed && !link.current_width) return {};
  ExplanationLine line{.label = "link", .text = link_text(link.current_speed, link.current_width)};
  const bool narrow = link.current_width && link.max_width && *link.current_width < *link.max_width;
  const auto now = gigatransfers(link.current_speed);
  const auto most = gigatransfers(link.max_speed);
  const bool slow = now && most && *now < *most;
  if (narrow || slow) line.text += ", could be " + link_text(link.max_speed, link.max_width);
  if (narrow) {
    line.text += ": fewer lanes than the card has (the slot, a riser, or a bad contact)";
    line.tint = Tint::attention;
  } else if (slow) {
    line.text += " (an idle card slows its link down)";
  }
  return line;
}

void add_users(Explanation& out, const ExplainInputs& inputs, const std::vector<vfio::DeviceUser>& users) {
  for (const vfio::DeviceUser& user : users) out.add("used by", user.text());
  if (users.empty()) out.add("used by", "no user was found");
  for (const std::string& unknown : inputs.description.unknown) out.add("used by", "not known: " + unknown);
}

std::string allocated_text(const std::string& pod) {
  return pod.empty() ? "allocated to a pod" : "allocated to pod " + pod;
}

std::string not_served(const ExplainInputs& inputs, const std::string& resource) {
  if (!inputs.plugin_runs) return "ferry plugin does not run";
  if (!inputs.snapshot.advertised) return {};
  if (!inputs.snapshot.advertised->standby.empty())
    return "ferry plugin is on standby: " + inputs.snapshot.advertised->standby;
  const api::AdvertisedResource* found = inputs.snapshot.advertised->resource(resource);
  return found == nullptr || found->registered ? std::string() : "the kubelet does not read its list";
}

void add_advertised(Explanation& out, const ExplainInputs& inputs,
                    const std::vector<api::AdvertisedDevice>& advertised_as,
                    const std::string& not_advertised) {
  const std::string label = "advertised";
  for (const api::AdvertisedDevice& listed : advertised_as) {
    const bool well = listed.healthy || listed.held_with_group;
    std::string text = "as " + listed.resource;
    if (listed.allocated) text += ", " + allocated_text(listed.pod);
    if (!listed.healthy) text += (well ? ", " : ", unhealthy: ") + listed.reason;
    out.add(label, std::move(text), well ? Tint::plain : Tint::bad);
  }
  if (!advertised_as.empty()) {
    if (const auto why = not_served(inputs, advertised_as.front().resource); !why.empty())
      out.add(label, "to no further pod now: " + why, Tint::attention);
  }
  if (!not_advertised.empty()) out.add(label, "not: " + not_advertised, Tint::attention);
  if (advertised_as.empty() && not_advertised.empty())
    out.add(label, inputs.snapshot.advertised ? "to no pod"
                   : inputs.plugin_runs       ? "ferry plugin runs, and its list is not known"
                                              : "ferry plugin has not run here");
}

std::string removal_of(const ExplainInputs& inputs, const vfio::PciAddress& address) {
  const mdev::VgpuGpu* gpu = inputs.snapshot.vgpus.find(address);
  if (gpu == nullptr) return "";
  const auto ours = [&](const mdev::VgpuDevice& device) {
    return gpu->framework->binds_functions()
               ? inputs.snapshot.journal.has_bound(device.parent, device.type_id)
               : vgpu::is_ours(inputs.node, device);
  };
  return mdev::removal_command(*gpu, ours);
}

void add_ways(Explanation& out, const std::vector<Way>& ways) {
  for (const Way& way : ways)
    out.add("to change", way.command.empty() ? way.does : fmt::format("`{}` {}", way.command, way.does));
}

FoundVgpu find_vgpu(const host::NodeDescription& description, const std::string& id) {
  for (const host::AcceleratorDescription& gpu : description.accelerators)
    for (const host::VgpuDescription& vgpu : gpu.vgpus)
      if (vgpu.device.id.text == id) return {.gpu = &gpu, .vgpu = &vgpu};
  return {};
}

const host::AcceleratorDescription* gpu_of(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  if (function.physical_function) return inputs.description.find(*function.physical_function);
  for (const host::AcceleratorDescription& description : inputs.description.accelerators)
    if (description.address().same_slot(function.address)) return &description;
  for (const host::AcceleratorDescription& description : inputs.description.accelerators)
    if (description.function.iommu_group && description.function.iommu_group == function.iommu_group)
      return &description;
  return nullptr;
}

}  // namespace ferry::cli
