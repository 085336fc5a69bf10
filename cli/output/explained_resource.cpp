// SPDX-License-Identifier: Apache-2.0
// The explanations of a vGPU and of a resource of the kubelet.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cli/output/explanation_parts.h"
#include "common/text/text.h"

namespace ferry::cli {

Explanation of_vgpu(const ExplainInputs& inputs, const FoundVgpu& found) {
  const mdev::VgpuDevice& device = found.vgpu->device;
  Explanation explanation{.title = fmt::format("{}  vGPU {}", device.id.text, device.type_name), .parts = {}};
  const bool usable = device.iommu_group && device.driver;
  const bool used = !found.vgpu->users.empty();
  const bool seen = inputs.snapshot.use.blind_to(device.id.text).empty();
  explanation.parts.push_back({.label = "state",
                               .lines = {{.text = used      ? "in use"
                                                  : !usable ? "broken: no VM can be given it"
                                                  : seen    ? "free"
                                                            : "use unknown",
                                          .tint = usable ? Tint::plain : Tint::bad}}});
  std::vector<std::string> on = {fmt::format("GPU {}, {}", found.gpu->address().text(), found.gpu->model)};
  if (device.parent != found.gpu->address()) on.push_back("its virtual function " + device.parent.text());
  if (device.placement) on.push_back(fmt::format("place {} in its memory", *device.placement));
  if (device.gpu_instance) on.push_back(fmt::format("GPU instance {}", *device.gpu_instance));
  explanation.parts.push_back(part("on", std::move(on)));
  explanation.parts.push_back(
      part("group", {device.iommu_group ? fmt::format("IOMMU group {}", *device.iommu_group)
                                        : std::string("none: no VM can be given it")}));
  explanation.parts.push_back(part("driver", {device.driver.value_or("none: no VM can be given it")}));
  if (device.params && !device.params->empty()) explanation.parts.push_back(part("params", {*device.params}));
  explanation.parts.push_back(users_part(inputs, found.vgpu->users));
  explanation.parts.push_back(advertised_part(inputs, found.vgpu->advertised_as, {}));
  std::vector<Way> ways;
  ways.reserve(found.vgpu->users.size() + 1);
  for (const vfio::DeviceUser& user : found.vgpu->users)
    ways.push_back({.command = {}, .does = std::string(user.remedy())});
  ways.push_back({.command = removal_of(inputs, found.gpu->address()),
                  .does = "removes it, with all others of its GPU"});
  explanation.parts.push_back(ways_part(ways));
  return explanation;
}

std::vector<api::AdvertisedDevice> devices_of(const ExplainInputs& inputs, const std::string& resource) {
  std::vector<api::AdvertisedDevice> out;
  if (!inputs.snapshot.advertised) return out;
  for (const api::AdvertisedDevice& device : inputs.snapshot.advertised->devices)
    if (device.resource == resource) out.push_back(device);
  return out;
}

// Kata's device ID is a number without a meaning for people, so the IOMMU group identifies the device.
std::optional<Subject> subject_of(const ExplainInputs& inputs, const api::AdvertisedDevice& device) {
  if (find_vgpu(inputs.description, device.id).vgpu != nullptr)
    return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = {device.id}};
  const auto address = vfio::PciAddress::parse(device.id);
  if (address && inputs.snapshot.inventory.find(*address) != nullptr)
    return Subject{.kind = Subject::Kind::function, .address = *address};
  for (const host::AcceleratorDescription& gpu : inputs.description.accelerators) {
    for (const host::VgpuDescription& vgpu : gpu.vgpus)
      if (vgpu.device.iommu_group == device.iommu_group)
        return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = vgpu.device.id};
    if (gpu.function.iommu_group == device.iommu_group)
      return Subject{.kind = Subject::Kind::function, .address = gpu.address()};
  }
  return std::nullopt;
}

namespace {

// Empty: the device is not on this host.
std::string name_of(const ExplainInputs& inputs, const api::AdvertisedDevice& device) {
  const auto subject = subject_of(inputs, device);
  if (!subject) return {};
  return subject->kind == Subject::Kind::vgpu ? subject->vgpu.text : subject->address.text();
}

}  // namespace

Explanation of_resource(const ExplainInputs& inputs, const std::string& resource) {
  const auto devices = devices_of(inputs, resource);
  const auto taken = std::ranges::count_if(devices, &api::AdvertisedDevice::allocated);
  const auto healthy = std::ranges::count_if(devices, &api::AdvertisedDevice::healthy);
  Explanation explanation{.title = resource, .parts = {}};
  const auto held = std::ranges::count_if(devices, &api::AdvertisedDevice::held_with_group);
  ExplanationPart state =
      part("state", {fmt::format("{}, {} healthy, {} allocated to pods{}", counted(devices.size(), "device"),
                                 healthy, taken, held == 0 ? "" : fmt::format(", {} held back", held))});
  const api::AdvertisedResource* advertised =
      inputs.snapshot.advertised ? inputs.snapshot.advertised->resource(resource) : nullptr;
  if (advertised != nullptr && advertised->places && !advertised->places->empty())
    state.lines.push_back(
        {.text = counted(advertised->places->size(), "place") + " to ask for together with a GPU"});
  if (const auto why = not_served(inputs, resource); !why.empty())
    state.lines.push_back({.text = "allocated to no further pod now: " + why, .tint = Tint::attention});
  explanation.parts.push_back(std::move(state));
  ExplanationPart list{.label = "devices", .lines = {}};
  for (const api::AdvertisedDevice& device : devices) {
    std::string line = device.id;
    if (const auto name = name_of(inputs, device); !name.empty() && name != device.id)
      line += fmt::format(" ({})", name);
    if (device.allocated) line += device.pod.empty() ? ", allocated" : ", " + allocated_text(device.pod);
    if (!device.healthy) line += (device.held_with_group ? ", " : ", unhealthy: ") + device.reason;
    const bool well = device.healthy || device.held_with_group;
    list.lines.push_back({.text = std::move(line), .tint = well ? Tint::plain : Tint::bad});
  }
  if (!list.lines.empty()) explanation.parts.push_back(std::move(list));
  const auto known = std::ranges::find_if(
      devices, [&](const api::AdvertisedDevice& device) { return !name_of(inputs, device).empty(); });
  if (known != devices.end())
    explanation.parts.push_back(
        part("more", {fmt::format("`ferry explain {}` describes one of them", name_of(inputs, *known))}));
  return explanation;
}

}  // namespace ferry::cli
