// SPDX-License-Identifier: Apache-2.0
// The explanations of an accelerator, of another PCI function, of a vGPU and of a resource of the kubelet.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output/explanation_parts.h"
#include "cli/output/status_text.h"
#include "common/text/text.h"
#include "mdev/framework.h"
#include "vfio/judgement/judge.h"

namespace ferry::cli {
namespace {

std::string before(const vfio::PriorState& prior) {
  if (prior.kernels_choice) return "it was on vfio before Ferry came";
  return "before that it had " + driver_text(prior.driver);
}

std::vector<std::string> mode_lines(const ExplainInputs& inputs,
                                    const host::AcceleratorDescription& description) {
  std::vector<std::string> lines;
  switch (description.mode) {
    case policy::Mode::passthrough:
      if (description.prior) {
        lines.push_back("Ferry bound it to vfio; " + before(*description.prior));
      } else if (description.function.driver_override) {
        lines.push_back(fmt::format(
            "its driver_override is {}, and Ferry did not set it: another program or a person did",
            *description.function.driver_override));
      } else {
        lines.emplace_back(
            "there is no driver override and no record of Ferry: the driver took it by its IDs (ids= of "
            "vfio-pci, new_id)");
      }
      break;
    case policy::Mode::vgpu:
      lines.push_back(fmt::format("it has {} ({})", counted(description.vgpus.size(), "vGPU"),
                                  description.framework->name()));
      break;
    case policy::Mode::host:
      if (description.prior) {
        lines.push_back("Ferry has a record of binding it; " + before(*description.prior));
      } else if (description.function.driver) {
        lines.push_back(description.function.driver_override
                            ? fmt::format("its driver_override is {}", *description.function.driver_override)
                            : fmt::format("the kernel's choice: {} took it when it was found",
                                          *description.function.driver));
      } else {
        lines.emplace_back("no driver of the host takes it, or it was unbound from its driver");
      }
      break;
  }
  const std::string policy = inputs.description.desired
                                 ? fmt::format("policy {}{}", inputs.description.desired->policy,
                                               inputs.description.desired->source.empty()
                                                   ? ""
                                                   : " (" + inputs.description.desired->source + ")")
                                 : std::string();
  if (policy.empty() && inputs.asked_for) {
    lines.push_back(
        fmt::format("policy {} is desired (/var/lib/ferry/desired.json), and ferry hostd has not applied it",
                    *inputs.asked_for));
  } else if (policy.empty()) {
    lines.emplace_back("no policy selects it (/var/lib/ferry/desired.json)");
  } else if (description.status && description.status->desired) {
    lines.push_back(fmt::format("{} asks for {}", policy, text(*description.status->desired)));
  } else if (description.status && description.status->allocation == api::Allocation::dra) {
    lines.push_back(policy + " gives it to ResourceClaims (DRA), which decide its mode");
  } else {
    lines.push_back(policy + " does not name it");
  }
  if (!policy.empty() && !inputs.hostd_runs)
    lines.emplace_back("ferry hostd does not run, so nothing keeps it in this state");
  return lines;
}

void add_reasons(const std::vector<std::string>& reasons, const std::string& hint, const std::string& so,
                 std::vector<Way>& ways) {
  for (const std::string& reason : reasons) ways.push_back({.command = {}, .does = so + reason});
  if (!hint.empty()) ways.push_back({.command = {}, .does = "hint: " + hint});
}

constexpr const char* kNoBind = "it cannot be bound to vfio: ";

void add_objections(const host::AcceleratorDescription& description, const std::string& so,
                    std::vector<Way>& ways) {
  add_reasons(description.bindable_reasons, description.bindable_hint, so, ways);
  if (description.bindable_hint.empty() && description.condition.health == host::Health::bad &&
      description.condition.hint.empty()) {
    ways.push_back({.command = "ferry doctor", .does = "lists what is wrong with this host"});
  }
}

ExplanationPart condition_part(policy::Mode mode, const host::Condition& condition) {
  ExplanationPart out{.label = "state",
                      .lines = {{.text = fmt::format("{}, {}", text(mode), condition.word),
                                 .tint = tint_of(condition.health)}}};
  if (!condition.reason.empty()) out.lines.push_back({.text = condition.reason});
  if (!condition.hint.empty()) out.lines.push_back({.text = "hint: " + condition.hint, .tint = Tint::dim});
  return out;
}

/// Every reason of the judgement that the state above does not name.
ExplanationPart findings_part(const host::AcceleratorDescription& description) {
  ExplanationPart out{.label = "findings", .lines = {}};
  for (const vfio::Finding& finding : description.findings) {
    if (description.condition.reason.find(finding.text) != std::string::npos || finding.user) continue;
    const bool seen = finding.answer == vfio::Answer::yes;
    out.lines.push_back({.text = fmt::format("{}{}: {}", vfio::rule(finding.rule).name,
                                             seen ? "" : " (not looked at)", finding.text),
                         .tint = seen ? Tint::attention : Tint::dim});
  }
  return out;
}

ExplanationPart vgpus_part(const host::AcceleratorDescription& description) {
  ExplanationPart out{.label = "vGPUs", .lines = {}};
  for (const host::VgpuDescription& vgpu : description.vgpus) {
    std::vector<std::string> users;
    std::ranges::transform(vgpu.users, std::back_inserter(users), who);
    out.lines.push_back({.text = fmt::format("{}  {}{}{}", vgpu.device.id.text, vgpu.device.type_name,
                                             users.empty() ? "" : ", in use: ", fmt::join(users, ", "))});
  }
  if (out.lines.empty()) {
    if (description.framework->makes_vgpus() && description.obstacle.empty()) {
      out.lines.push_back({.text = fmt::format("none made ({})", description.framework->name())});
    } else {
      out.lines.push_back(
          {.text = "none" + (description.obstacle.empty() ? "" : ": " + description.obstacle)});
    }
  }
  return out;
}

void add_facts(Explanation& explanation, const vfio::DeviceFacts& facts) {
  if (ExplanationLine link = link_line(facts.link); !link.text.empty())
    explanation.parts.push_back({.label = "link", .lines = {std::move(link)}});
  if (facts.power.state)
    explanation.parts.push_back(
        part("power", {*facts.power.state +
                       (facts.power.runtime_status ? ", " + *facts.power.runtime_status : std::string())}));
  if (facts.reset.methods)
    explanation.parts.push_back(part(
        "reset", {facts.reset.methods->empty() ? std::string("no method is enabled")
                                               : fmt::format("{}", fmt::join(*facts.reset.methods, ", "))}));
}

}  // namespace

std::vector<Way> ways_of(const ExplainInputs& inputs, const host::AcceleratorDescription& description) {
  const std::string address = description.address().text();
  std::vector<Way> ways;
  for (const vfio::DeviceUser& user : description.users) {
    if (ways.empty() || ways.back().does != user.remedy())
      ways.push_back({.command = {}, .does = std::string(user.remedy())});
  }
  if (inputs.description.desired && description.status && description.status->desired) {
    const std::string& source = inputs.description.desired->source;
    ways.push_back({.command = {},
                    .does = fmt::format("choose another policy{}: hostd undoes a change by hand",
                                        source.empty() ? "" : " (" + source + " names this one)")});
  }
  switch (description.mode) {
    case policy::Mode::passthrough:
      if (!description.group_viable && description.bindable) {
        ways.push_back({.command = "ferry vfio bind --device " + address,
                        .does = "also binds the rest of its card and group"});
      } else if (!description.group_viable) {
        add_objections(description, "no VM can have it: ", ways);
      }
      ways.push_back({.command = "ferry vfio unbind --device " + address,
                      .does = description.prior && description.prior->driver
                                  ? "returns it to " + *description.prior->driver
                                  : "returns it to the host"});
      break;
    case policy::Mode::vgpu:
      ways.push_back({.command = removal_of(inputs, description.address()), .does = "removes its vGPUs"});
      break;
    case policy::Mode::host:
      if (description.bindable) {
        ways.push_back(
            {.command = "ferry vfio bind --device " + address, .does = "binds it to vfio, for a VM"});
      } else {
        add_objections(description, kNoBind, ways);
      }
      if (description.framework->makes_vgpus())
        ways.push_back({.command = "ferry vgpu apply -f FILE", .does = "divides it by a profile"});
      break;
  }
  return ways;
}

Explanation of_accelerator(const ExplainInputs& inputs, const host::AcceleratorDescription& description) {
  Explanation explanation{.title = fmt::format("{}  {} ({})", description.address().text(), description.model,
                                               description.function.ids()),
                          .parts = {}};
  explanation.parts.push_back(condition_part(description.mode, description.condition));
  if (auto findings = findings_part(description); !findings.lines.empty())
    explanation.parts.push_back(std::move(findings));
  explanation.parts.push_back(part("place", place_lines(inputs, description.function)));
  explanation.parts.push_back(group_part(inputs, description.function));
  if (description.facts) add_facts(explanation, *description.facts);
  explanation.parts.push_back(part("reason", mode_lines(inputs, description)));
  explanation.parts.push_back(vgpus_part(description));
  explanation.parts.push_back(users_part(inputs, description.users));
  explanation.parts.push_back(advertised_part(inputs, description.advertised_as, description.not_advertised));
  explanation.parts.push_back(ways_part(ways_of(inputs, description)));
  if (!inputs.description.notes.empty()) explanation.parts.push_back(part("notes", inputs.description.notes));
  return explanation;
}

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

std::vector<Way> ways_by_name(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  const std::string address = function.address.text();
  if (vfio::on_vfio_driver(function))
    return {{.command = "ferry vfio unbind --device " + address, .does = "returns it to the host"}};
  std::vector<Way> ways;
  vfio::AcceleratorRules rules = inputs.rules.asking_for(function.pci_class());
  rules.named.insert(function.address);
  const std::vector<vfio::Unit> units = vfio::units_of(inputs.snapshot.inventory, {function.address}, {});
  // The snapshot asks for the users of a function only if it shares a group with an accelerator.
  const auto findings =
      vfio::judge(units.front(), inputs.snapshot.inventory, rules, {.carriers = &inputs.carriers});
  std::vector<std::string> reasons;
  std::string hint;
  for (const vfio::Finding& finding : findings) {
    if (finding.answer != vfio::Answer::yes || !finding.blocks(vfio::Blocks::bind)) continue;
    reasons.push_back(finding.text);
    if (hint.empty()) hint = finding.advice;
  }
  if (reasons.empty()) return {{.command = "ferry vfio bind --device " + address, .does = "gives it to VMs"}};
  add_reasons(reasons, hint, kNoBind, ways);
  return ways;
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
    explanation.parts.push_back(ways_part(ways_by_name(inputs, function)));
  } else if (gpu != nullptr)
    explanation.parts.push_back(
        part("to change", {fmt::format("`ferry explain {}` describes its GPU", gpu->address().text())}));
  return explanation;
}

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
