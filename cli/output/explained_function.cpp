// SPDX-License-Identifier: Apache-2.0
// The explanation of a PCI function that is no accelerator.
#include <algorithm>

#include <fmt/format.h>

#include "cli/output/explanation_parts.h"
#include "vfio/bind/unit_members.h"

namespace ferry::cli {
namespace {

const host::VgpuDescription* vgpu_on(const host::AcceleratorDescription& gpu,
                                     const vfio::PciAddress& function) {
  const auto found = std::ranges::find_if(
      gpu.vgpus, [&](const host::VgpuDescription& vgpu) { return vgpu.device.parent == function; });
  return found == gpu.vgpus.end() ? nullptr : &*found;
}

std::string relation(const host::AcceleratorDescription& gpu, const vfio::PciFunction& function) {
  if (function.physical_function) return "a virtual function of " + gpu.address().text();
  if (vfio::is_companion(gpu.function, function)) return "of the same card as " + gpu.address().text();
  if (gpu.address().same_slot(function.address)) return "in the same slot as " + gpu.address().text();
  return "of the same IOMMU group as " + gpu.address().text();
}

std::string by_name_text(const host::NamedDescription& description) {
  return fmt::format("{}: counted only where it is named, not by `--all` or `devices: all`",
                     description.model.empty() ? description.function.ids() : description.model);
}

std::string virtual_function_text(const host::NamedDescription& physical) {
  return fmt::format("a virtual function of {} ({}): it is passed through whole, once a vfio driver has it",
                     physical.function.address.text(),
                     physical.model.empty() ? physical.function.ids() : physical.model);
}

}  // namespace

Way way_by_name(const vfio::PciFunction& function) {
  const bool away = vfio::on_vfio_driver(function);
  return {
      .command = fmt::format("ferry vfio {} --device {}", away ? "unbind" : "bind", function.address.text()),
      .does = away ? "returns it to the host" : "gives it to VMs"};
}

Explanation of_function(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  Explanation explanation{
      .title = fmt::format("{}  {} ({})", function.address.text(), vfio::kind_of(function), function.ids()),
      .parts = {}};
  const host::AcceleratorDescription* gpu = gpu_of(inputs, function);
  explanation.parts.push_back(part("state", {driver_text(function.driver)}));
  if (function.problem)
    explanation.parts.push_back(
        {.label = "problem", .lines = {{.text = function.problem->message, .tint = Tint::bad}}});
  const host::NamedDescription* named = inputs.description.find_by_name(function.address);
  const host::NamedDescription* physical =
      inputs.description.find_by_name(function.physical_function.value_or(function.address));
  const bool is_vf = physical != nullptr && function.physical_function;
  explanation.parts.push_back(
      part("is", {is_vf              ? virtual_function_text(*physical)
                  : named != nullptr ? by_name_text(*named)
                  : gpu == nullptr   ? "no accelerator, and no part of one: Ferry never changes it"
                                     : fmt::format("{} ({})", relation(*gpu, function), gpu->model)}));
  explanation.parts.push_back(part("place", place_lines(inputs, function)));
  explanation.parts.push_back(group_part(inputs, function));
  if (gpu != nullptr && function.physical_function) {
    const host::VgpuDescription* vgpu = vgpu_on(*gpu, function.address);
    explanation.parts.push_back(part(
        "vGPUs", {vgpu == nullptr ? std::string("none")
                                  : fmt::format("{}  {}", vgpu->device.id.text, vgpu->device.type_name)}));
    explanation.parts.push_back(
        advertised_part(inputs,
                        vgpu == nullptr ? host::advertised_as(inputs.snapshot, function.address.text(), {})
                                        : vgpu->advertised_as,
                        {}));
  }
  if (named != nullptr)
    explanation.parts.push_back(advertised_part(inputs, named->advertised_as, named->not_advertised));
  const auto users = inputs.snapshot.use.of(function.address.text());
  if (!users.empty()) explanation.parts.push_back(part("used by", user_lines({users.begin(), users.end()})));
  if (named != nullptr || is_vf) {
    explanation.parts.push_back(ways_part({way_by_name(function)}));
  } else if (gpu != nullptr)
    explanation.parts.push_back(
        part("to change", {fmt::format("`ferry explain {}` describes its GPU", gpu->address().text())}));
  return explanation;
}

}  // namespace ferry::cli
