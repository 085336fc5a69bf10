// SPDX-License-Identifier: Apache-2.0
#include "cli/output/explanation.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/explanation_parts.h"
#include "cli/output/status_document.h"
#include "cli/output/table.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "common/text/visible_text.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

// Returns only functions that Ferry handles: a host bridge is no suggestion.
std::vector<std::string> known_names(const ExplainInputs& inputs) {
  std::vector<std::string> names;
  for (const host::NamedDescription& named : inputs.description.by_name)
    names.push_back(named.function.address.text());
  for (const host::AcceleratorDescription& gpu : inputs.description.accelerators) {
    names.push_back(gpu.address().text());
    for (const host::MemberDescription& member : gpu.members) names.push_back(member.function.address.text());
    for (const host::VgpuDescription& vgpu : gpu.vgpus) names.push_back(vgpu.device.id.text);
  }
  if (inputs.snapshot.advertised)
    for (const api::AdvertisedResource& resource : inputs.snapshot.advertised->resources)
      names.push_back(resource.name);
  return names;
}

}  // namespace

void Explanation::add(const std::string& label, std::string text, Tint tint) {
  lines.push_back({.label = label, .text = std::move(text), .tint = tint});
}

Result<Subject> find_subject(const ExplainInputs& inputs, const std::string& word) {
  const std::string small = lower(word);
  if (find_vgpu(inputs.description, small).vgpu != nullptr && !vfio::PciAddress::parse(small))
    return Subject{.vgpu = small};
  if (inputs.snapshot.advertised && inputs.snapshot.advertised->resource(word) != nullptr)
    return Subject{.resource = word};
  const auto address = vfio::PciAddress::parse(word);
  if (address && inputs.snapshot.inventory.find(*address) != nullptr) return Subject{.address = *address};
  if (inputs.snapshot.advertised) {
    const auto& devices = inputs.snapshot.advertised->devices;
    const auto advertised = std::ranges::find(devices, word, &api::AdvertisedDevice::id);
    const auto subject = advertised == devices.end() ? std::nullopt : subject_of(inputs, *advertised);
    if (subject) return *subject;
  }
  // A GPU that the policy means by its number and that is gone.
  const auto& trouble = inputs.description.error;
  if (address && trouble && trouble->message.find(address->text()) != std::string::npos)
    return fail(Errc::usage, fmt::format("nothing on this node is called '{}': {}", word, trouble->message),
                trouble->hint);
  const std::string meant = did_you_mean(word, known_names(inputs));
  if (meant.empty() && !address && word.find('/') != std::string::npos)
    return fail(Errc::usage, fmt::format("ferry plugin has not advertised '{}' on this host yet", word),
                "`ferry kubevirt-cr` prints the resources that it would advertise now");
  // The hint of parse() has the long form of a short address.
  const std::string hint = !address && meant.empty() && word.find(':') != std::string::npos
                               ? address.error().hint
                               : "a PCI address, a vGPU's UUID, or a resource's name; `ferry status` lists "
                                 "addresses, with -o json UUIDs and names too";
  return fail(Errc::usage, fmt::format("nothing on this node is called '{}'{}", word, meant), hint);
}

Explanation explanation_of(const ExplainInputs& inputs, const Subject& subject) {
  if (!subject.vgpu.empty()) return of_vgpu(inputs, find_vgpu(inputs.description, subject.vgpu));
  if (!subject.resource.empty()) return of_resource(inputs, subject.resource);
  if (const host::AcceleratorDescription* description = inputs.description.find(subject.address))
    return of_accelerator(inputs, *description);
  return of_function(inputs, *inputs.snapshot.inventory.find(subject.address));
}

json to_json(const ExplainInputs& inputs, const Subject& subject) {
  json out;
  if (!subject.vgpu.empty()) {
    out["kind"] = "vgpu";
    const FoundVgpu found = find_vgpu(inputs.description, subject.vgpu);
    out["vgpu"] = to_json(*found.vgpu);
    out["accelerator"] = found.gpu->address().text();
  } else if (!subject.resource.empty()) {
    out["kind"] = "resource";
    out["resource"] = subject.resource;
    out["devices"] = json::array();
    for (const api::AdvertisedDevice& device : devices_of(inputs, subject.resource))
      out["devices"].push_back({{"id", device.id},
                                {"iommu_group", device.iommu_group},
                                {"healthy", device.healthy},
                                {"reason", device.reason},
                                {"allocated", device.allocated},
                                {"pod", or_null(device.pod)}});
  } else {
    out["kind"] = "function";
    const vfio::PciFunction& function = *inputs.snapshot.inventory.find(subject.address);
    const host::AcceleratorDescription* description = inputs.description.find(subject.address);
    out["function"] = description == nullptr ? to_json(function) : to_json(*description);
    const host::AcceleratorDescription* gpu = description == nullptr ? gpu_of(inputs, function) : description;
    out["accelerator"] = gpu == nullptr ? json(nullptr) : json(gpu->address().text());
    out["place"] = nullptr;
    if (const auto place = inputs.places.find(subject.address); place != inputs.places.end())
      out["place"] = {{"slot", or_null(place->second.slot)}, {"above", place->second.above}};
    std::vector<Way> ways;
    if (description != nullptr)
      ways = ways_of(inputs, *description);
    else if (inputs.description.find_by_name(subject.address) != nullptr)
      ways = ways_by_name(inputs, function);
    out["ways"] = json::array();
    for (const Way& way : ways)
      out["ways"].push_back({{"command", or_null(way.command)}, {"does", way.does}});
  }

  // Readers of the document find the list where there is no way, too.
  out["description"]["to change"] = json::array();
  const Explanation explanation = explanation_of(inputs, subject);
  for (const ExplanationLine& line : explanation.lines) out["description"][line.label].push_back(line.text);
  return out;
}

std::string explanation_text(const Explanation& explanation, const TextOutput& output) {
  Table table({"", ""});
  std::string label;
  for (const ExplanationLine& line : explanation.lines) {
    table.add({line.label == label ? " " : "  " + line.label, visible_line(line.text)}, line.tint);
    table.tint(0, Tint::dim);
    label = line.label;
  }
  return tinted_lines(output, Tint::heading, explanation.title) + table.text(output);
}

}  // namespace ferry::cli
