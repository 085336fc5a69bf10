// SPDX-License-Identifier: Apache-2.0
// The explanations of an accelerator, of another PCI function, of a vGPU and of a resource of the kubelet.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output/explanation_parts.h"
#include "cli/output/status_text.h"
#include "common/text/text.h"
#include "mdev/framework.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/judgement/judge.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::cli {
namespace {

std::string before(const vfio::PriorState& prior) {
  if (prior.kernels_choice) return "it was on vfio before Ferry came";
  return "before that it had " + driver_text(prior.driver);
}

/// The reason for the driver of a GPU of which Ferry has no record.
std::string why_unrecorded(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  const auto& driver = function.driver;
  const auto& named = function.driver_override;
  if (function.iommu_group && inputs.snapshot.journal.unreadable.contains(*function.iommu_group))
    return fmt::format("not known: the record of Ferry about group {} cannot be read", *function.iommu_group);
  if (function.override_unread) return "not known: its driver_override was not read";
  if (!driver)
    return named ? fmt::format("the kernel binds only {}, which its driver_override names", *named)
                 : "no driver of the host takes it, or it was unbound from its driver";
  if (named && *named != *driver)
    return fmt::format("{} took it before its driver_override named {}", *driver, *named);
  if (vfio::on_vfio_driver(function))
    return named ? fmt::format(
                       "its driver_override is {}, and Ferry did not set it: another program or a person did",
                       *named)
                 : "there is no driver override and no record of Ferry: the driver took it by its IDs (ids= "
                   "of vfio-pci, new_id)";
  return named ? fmt::format("its driver_override is {}", *named)
               : fmt::format("the kernel's choice: {} took it when it was found", *driver);
}

/// The reason for its mode, and the policy for it.
void add_mode(Explanation& out, const ExplainInputs& inputs, const host::AcceleratorDescription& gpu) {
  std::string why;
  if (gpu.mode == policy::Mode::vgpu) {
    why = fmt::format("it has {} ({})", counted(gpu.vgpus.size(), "vGPU"), gpu.framework->name());
  } else if (!gpu.prior) {
    why = why_unrecorded(inputs, gpu.function);
  } else {
    why = gpu.mode == policy::Mode::passthrough ? "Ferry bound it to vfio; "
                                                : "Ferry has a record of binding it; ";
    why += before(*gpu.prior);
  }
  out.add("reason", std::move(why));
  if (!inputs.description.desired) {
    out.add(
        "reason",
        inputs.asked_for
            ? fmt::format(
                  "policy {} is desired (/var/lib/ferry/desired.json), and ferry hostd has not applied it",
                  *inputs.asked_for)
        : inputs.policy_fault.empty() ? "no policy selects it (/var/lib/ferry/desired.json)"
                                      : "the policy for it is not known: " + inputs.policy_fault);
    return;
  }
  const api::DesiredMark& desired = *inputs.description.desired;
  const std::string policy =
      fmt::format("policy {}{}", desired.policy, desired.source.empty() ? "" : " (" + desired.source + ")");
  if (gpu.status && gpu.status->desired) {
    out.add("reason", fmt::format("{} asks for {}", policy, text(*gpu.status->desired)));
  } else if (gpu.status && gpu.status->allocation == api::Allocation::dra) {
    out.add("reason", policy + " gives it to ResourceClaims (DRA), which decide its mode");
  } else if (inputs.description.phase != api::NodePhase::ready) {
    out.add("reason", policy + " is not applied yet, or does not name it; `ferry assert` compares");
  } else {
    out.add("reason", policy + " does not name it");
  }
  if (!inputs.description.hostd_runs)
    out.add("reason", "ferry hostd does not run, so nothing keeps it in this state");
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

/// Adds how each user gives the device back; users with the same way in a row add it once.
void add_remedies(std::span<const vfio::DeviceUser> users, std::vector<Way>& ways) {
  for (const vfio::DeviceUser& user : users)
    if (ways.empty() || ways.back().does != user.remedy())
      ways.push_back({.command = {}, .does = std::string(user.remedy())});
}

/// The way back from vfio, or why there is none even if no user has it.
void add_unbind(const ExplainInputs& inputs, const vfio::AcceleratorRules& rules,
                const vfio::PciAddress& address, const std::string& does, std::vector<Way>& ways) {
  vfio::RebindRequest request;
  request.accelerators = {address};
  const vfio::RebindPlan plan =
      vfio::plan_unbind(inputs.snapshot.inventory, rules, request, vfio::UseReport{}, inputs.snapshot.journal,
                        vfio::stuck_functions(inputs.snapshot.stuck, inputs.snapshot.inventory));
  if (plan.refusals.empty())
    return ways.push_back({.command = "ferry vfio unbind --device " + address.text(), .does = does});
  const vfio::Refusal& refusal = plan.refusals.front();
  add_reasons(refusal.reasons, refusal.hint, "it cannot go back to the host: ", ways);
}

/// Why Ferry makes and removes no vGPU of the GPU now; empty: it does.
std::string no_vgpu_changes(const host::AcceleratorDescription& gpu) {
  const auto stuck = std::ranges::find(gpu.findings, vfio::RuleId::stuck_write, &vfio::Finding::rule);
  return stuck == gpu.findings.end() ? gpu.vgpu_problem : stuck->text;
}

Way removal_way(const ExplainInputs& inputs, const host::AcceleratorDescription& gpu, std::string does) {
  const std::string why_not = no_vgpu_changes(gpu);
  if (!why_not.empty())
    return {.command = {},
            .does = fmt::format("Ferry removes no vGPU of {} meanwhile: {}", gpu.address().text(), why_not)};
  return {.command = removal_of(inputs, gpu.address()), .does = std::move(does)};
}

/// True if a record is lost that may name a user, so that each change of the device is refused. More rights
/// would show nothing more.
bool may_have_lost_user(const ExplainInputs& inputs, const vfio::PciAddress& device, std::vector<Way>& ways) {
  const vfio::UseReport& use = inputs.snapshot.use;
  const std::string_view why = use.blind_to(device.text());
  if (why.empty() || (use.blind_hint.empty() && !use.blind.empty())) return false;
  ways.push_back({.command = {}, .does = fmt::format("Ferry changes nothing of it meanwhile: {}", why)});
  return true;
}

void add_vgpus(Explanation& out, const host::AcceleratorDescription& description) {
  for (const host::VgpuDescription& vgpu : description.vgpus) {
    std::vector<std::string> users;
    std::ranges::transform(vgpu.users, std::back_inserter(users), who);
    out.add("vGPUs", fmt::format("{}  {}{}{}", vgpu.device.id.text, vgpu.device.type_name,
                                 users.empty() ? "" : ", in use: ", fmt::join(users, ", ")));
  }
  if (!description.vgpus.empty()) return;
  if (!description.vgpu_problem.empty()) return out.add("vGPUs", "not known: " + description.vgpu_problem);
  const std::string& obstacle = description.obstacle;
  out.add("vGPUs", description.framework->makes_vgpus() && obstacle.empty()
                       ? fmt::format("none made ({})", description.framework->name())
                       : "none" + (obstacle.empty() ? "" : ": " + obstacle));
}

void add_registers(Explanation& out, const api::ReportedRegisters& registers) {
  const vfio::RegisterFacts& facts = registers.facts;
  const std::string label = "registers";
  const auto [note, tint] = registers_note(registers);
  const std::chrono::sys_seconds read_at{std::chrono::seconds(registers.read_at)};
  out.add(label, registers.read_at == 0 ? note : fmt::format("{}, as read at {:%F %T} UTC", note, read_at),
          tint);
  if (registers.read_at == 0) return;
  std::vector<std::string> parts;
  if (!facts.chip.empty()) parts.push_back("chip " + facts.chip);
  if (!facts.chip_id.empty()) parts.push_back("id " + facts.chip_id);
  if (facts.memory_bytes) parts.push_back(fmt::format("memory of {} MiB", *facts.memory_bytes >> 20U));
  if (facts.ecc) parts.emplace_back(*facts.ecc ? "with ECC" : "without ECC");
  if (facts.scrubbed) parts.emplace_back(*facts.scrubbed ? "cleared since its reset" : "not cleared yet");
  if (facts.bar0_filter) parts.emplace_back(*facts.bar0_filter ? "BAR 0 filtered" : "BAR 0 open");
  if (facts.nvlink_encryption.value_or(false)) parts.emplace_back("NVLink encrypted");
  out.add(label, fmt::format("{}", fmt::join(parts, ", ")));
  for (const vfio::UnknownFact& unknown : facts.unknown)
    out.add(label, fmt::format("{} not known: {}", unknown.fact, unknown.reason), Tint::dim);
}

}  // namespace

std::pair<std::string, Tint> registers_note(const api::ReportedRegisters& registers) {
  const vfio::RegisterFacts& facts = registers.facts;
  if (registers.read_at == 0) return {"not read: " + facts.problem, Tint::dim};
  if (facts.recovery.value_or(false)) return {"its firmware is in recovery mode", Tint::bad};
  if (!facts.booted.value_or(true)) return {"its boot was not complete", Tint::attention};
  const std::string_view mode = facts.mode();
  if (mode == "invalid") return {"confidential mode invalid: setting any mode repairs it", Tint::attention};
  return {fmt::format("confidential mode {}", mode.empty() ? "not known" : mode), Tint::dim};
}

std::vector<Way> ways_of(const ExplainInputs& inputs, const host::AcceleratorDescription& description) {
  const std::string address = description.address().text();
  std::vector<Way> ways;
  add_remedies(description.users, ways);
  if (inputs.description.desired && description.status && description.status->desired) {
    const std::string& source = inputs.description.desired->source;
    ways.push_back({.command = {},
                    .does = fmt::format("choose another policy{}: hostd undoes a change by hand",
                                        source.empty() ? "" : " (" + source + " names this one)")});
  }
  if (may_have_lost_user(inputs, description.address(), ways)) return ways;
  switch (description.mode) {
    case policy::Mode::passthrough:
      if (!description.group_viable && description.bindable) {
        ways.push_back({.command = "ferry vfio bind --device " + address,
                        .does = "also binds the rest of its card and group"});
      } else if (!description.group_viable) {
        add_objections(description, "no VM can have it: ", ways);
      }
      add_unbind(inputs, inputs.rules, description.address(),
                 description.prior && description.prior->driver
                     ? "returns it to " + *description.prior->driver
                     : "returns it to the host",
                 ways);
      break;
    case policy::Mode::vgpu:
      ways.push_back(removal_way(inputs, description, "removes its vGPUs"));
      break;
    case policy::Mode::host:
      if (description.bindable) {
        ways.push_back(
            {.command = "ferry vfio bind --device " + address, .does = "binds it to vfio, for a VM"});
      } else {
        add_objections(description, kNoBind, ways);
      }
      if (description.framework->makes_vgpus() && no_vgpu_changes(description).empty())
        ways.push_back({.command = "ferry vgpu apply -f FILE", .does = "divides it by a profile"});
      break;
  }
  return ways;
}

Explanation of_accelerator(const ExplainInputs& inputs, const host::AcceleratorDescription& description) {
  Explanation out{.title = fmt::format("{}  {} ({})", description.address().text(), description.model,
                                       description.function.ids())};
  const host::Condition& condition = description.condition;
  out.add("state", fmt::format("{}, {}", text(description.mode), condition.word), tint_of(condition.health));
  if (!condition.reason.empty()) out.add("state", condition.reason);
  if (!condition.hint.empty()) out.add("state", "hint: " + condition.hint, Tint::dim);

  // Every reason of the judgement that the state does not name.
  for (const vfio::Finding& finding : description.findings) {
    if (condition.reason.find(finding.text) != std::string::npos || finding.user) continue;
    const bool seen = finding.answer == vfio::Answer::yes;
    out.add(
        "findings",
        fmt::format("{}{}: {}", vfio::rule(finding.rule).name, seen ? "" : " (not looked at)", finding.text),
        seen ? Tint::attention : Tint::dim);
  }

  add_place(out, inputs, description.function);
  add_group(out, inputs, description.function);
  const vfio::DeviceFacts facts = description.facts.value_or(vfio::DeviceFacts{});
  if (ExplanationLine link = link_line(facts.link); !link.text.empty()) out.lines.push_back(std::move(link));
  if (facts.power.state)
    out.add("power", *facts.power.state +
                         (facts.power.runtime_status ? ", " + *facts.power.runtime_status : std::string()));
  if (facts.reset.methods)
    out.add("reset", facts.reset.methods->empty() ? "no method is enabled"
                                                  : fmt::format("{}", fmt::join(*facts.reset.methods, ", ")));

  if (description.status && description.status->registers) add_registers(out, *description.status->registers);
  add_mode(out, inputs, description);
  add_vgpus(out, description);
  add_users(out, inputs, description.users);
  add_advertised(out, inputs, description.advertised_as, description.not_advertised);
  add_ways(out, ways_of(inputs, description));
  for (const std::string& note : inputs.description.notes) out.add("notes", note);
  return out;
}

namespace {

std::string relation(const host::AcceleratorDescription& gpu, const vfio::PciFunction& function) {
  if (function.physical_function) return "a virtual function of " + gpu.address().text();
  if (vfio::is_companion(gpu.function, function)) return "of the same card as " + gpu.address().text();
  if (gpu.address().same_slot(function.address)) return "in the same slot as " + gpu.address().text();
  return "of the same IOMMU group as " + gpu.address().text();
}

}  // namespace

std::vector<Way> ways_by_name(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  const host::NodeSnapshot& snapshot = inputs.snapshot;
  std::vector<Way> ways;
  vfio::AcceleratorRules rules = inputs.rules.asking_for(function.pci_class());
  rules.named.insert(function.address);
  if (may_have_lost_user(inputs, function.address, ways)) return ways;
  if (vfio::on_vfio_driver(function)) {
    add_remedies(snapshot.use.of(function.address.text()), ways);
    add_unbind(inputs, rules, function.address, "returns it to the host", ways);
    return ways;
  }
  const std::vector<vfio::Unit> units = vfio::units_of(snapshot.inventory, {function.address}, {});
  const auto stuck = vfio::stuck_functions(snapshot.stuck, snapshot.inventory);
  const auto findings = vfio::judge(units.front(), snapshot.inventory, rules,
                                    {.use = &snapshot.use,
                                     .stuck = &stuck,
                                     .unreadable_records = &snapshot.journal.unreadable,
                                     .carriers = &inputs.carriers});
  std::vector<std::string> reasons;
  std::string hint;
  for (const vfio::Finding& finding : findings) {
    if (finding.answer != vfio::Answer::yes || !finding.blocks(vfio::Blocks::bind)) continue;
    reasons.push_back(finding.text);
    if (hint.empty()) hint = finding.advice;
  }
  if (reasons.empty())
    return {{.command = "ferry vfio bind --device " + function.address.text(), .does = "gives it to VMs"}};
  add_reasons(reasons, hint, kNoBind, ways);
  return ways;
}

Explanation of_function(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  Explanation out{
      .title = fmt::format("{}  {} ({})", function.address.text(), vfio::kind_of(function), function.ids())};
  const host::AcceleratorDescription* gpu = gpu_of(inputs, function);
  out.add("state", driver_text(function.driver));
  const host::NamedDescription* named = inputs.description.find_by_name(function.address);
  if (const vfio::Finding* trouble = named == nullptr ? nullptr : named->trouble()) {
    out.add("problem", trouble->text, Tint::bad);
    if (!trouble->advice.empty()) out.add("problem", "hint: " + trouble->advice, Tint::dim);
  } else if (function.problem) {
    out.add("problem", function.problem->message, Tint::bad);
  }
  const host::NamedDescription* physical =
      inputs.description.find_by_name(function.physical_function.value_or(function.address));
  const bool is_vf = physical != nullptr && function.physical_function;
  std::string is = "no accelerator, and no part of one: Ferry never changes it";
  if (is_vf)
    is = fmt::format("a virtual function of {} ({}): it is passed through whole, once a vfio driver has it",
                     physical->function.address.text(),
                     physical->model.empty() ? physical->function.ids() : physical->model);
  else if (named != nullptr)
    is = fmt::format("{}: counted only where it is named, not by `--all` or `devices: all`",
                     named->model.empty() ? named->function.ids() : named->model);
  else if (gpu != nullptr)
    is = fmt::format("{} ({})", relation(*gpu, function), gpu->model);
  out.add("is", std::move(is));

  add_place(out, inputs, function);
  add_group(out, inputs, function);
  if (gpu != nullptr && function.physical_function) {
    const auto found = std::ranges::find_if(
        gpu->vgpus, [&](const host::VgpuDescription& one) { return one.device.parent == function.address; });
    const host::VgpuDescription* const vgpu = found == gpu->vgpus.end() ? nullptr : &*found;
    out.add("vGPUs",
            vgpu == nullptr ? "none" : fmt::format("{}  {}", vgpu->device.id.text, vgpu->device.type_name));
    add_advertised(out, inputs,
                   vgpu == nullptr ? host::advertised_as(inputs.snapshot, function.address.text(), {})
                                   : vgpu->advertised_as,
                   {});
  }
  if (named != nullptr) add_advertised(out, inputs, named->advertised_as, named->not_advertised);
  for (const vfio::DeviceUser& user : inputs.snapshot.use.of(function.address.text()))
    out.add("used by", user.text());
  if (named != nullptr || is_vf) {
    add_ways(out, ways_by_name(inputs, function));
    for (const std::string& note : inputs.description.notes) out.add("notes", note);
  } else if (gpu != nullptr) {
    out.add("to change", fmt::format("`ferry explain {}` describes its GPU", gpu->address().text()));
  }
  return out;
}

Explanation of_vgpu(const ExplainInputs& inputs, const FoundVgpu& found) {
  const mdev::VgpuDevice& device = found.vgpu->device;
  Explanation out{.title = fmt::format("{}  vGPU {}", device.id.text, device.type_name)};
  const bool usable = device.iommu_group && device.driver;
  const bool used = !found.vgpu->users.empty();
  const std::string_view blind = inputs.snapshot.use.blind_to(device.id.text);
  out.add("state",
          used            ? "in use"
          : !usable       ? "broken: no VM can be given it"
          : blind.empty() ? "free"
                          : fmt::format("use unknown: {}", blind),
          usable ? Tint::plain : Tint::bad);
  out.add("on", fmt::format("GPU {}, {}", found.gpu->address().text(), found.gpu->model));
  if (device.parent != found.gpu->address()) out.add("on", "its virtual function " + device.parent.text());
  if (device.placement) out.add("on", fmt::format("place {} in its memory", *device.placement));
  if (device.gpu_instance) out.add("on", fmt::format("GPU instance {}", *device.gpu_instance));
  out.add("group", device.iommu_group ? fmt::format("IOMMU group {}", *device.iommu_group)
                                      : "none: no VM can be given it");
  out.add("driver", device.driver.value_or("none: no VM can be given it"));
  if (device.params && !device.params->empty()) out.add("params", *device.params);
  add_users(out, inputs, found.vgpu->users);
  add_advertised(out, inputs, found.vgpu->advertised_as, {});
  std::vector<Way> ways;
  ways.reserve(found.vgpu->users.size() + 1);
  for (const vfio::DeviceUser& user : found.vgpu->users)
    ways.push_back({.command = {}, .does = std::string(user.remedy())});
  ways.push_back(removal_way(inputs, *found.gpu, "removes it, with all others of its GPU"));
  add_ways(out, ways);
  return out;
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
  if (find_vgpu(inputs.description, device.id).vgpu != nullptr) return Subject{.vgpu = device.id};
  const auto address = vfio::PciAddress::parse(device.id);
  if (address && inputs.snapshot.inventory.find(*address) != nullptr) return Subject{.address = *address};
  for (const host::AcceleratorDescription& gpu : inputs.description.accelerators) {
    for (const host::VgpuDescription& vgpu : gpu.vgpus)
      if (vgpu.device.iommu_group == device.iommu_group) return Subject{.vgpu = vgpu.device.id.text};
    if (gpu.function.iommu_group == device.iommu_group) return Subject{.address = gpu.address()};
  }
  return std::nullopt;
}

Explanation of_resource(const ExplainInputs& inputs, const std::string& resource) {
  const auto devices = devices_of(inputs, resource);
  const auto taken = std::ranges::count_if(devices, &api::AdvertisedDevice::allocated);
  const auto healthy = std::ranges::count_if(devices, &api::AdvertisedDevice::healthy);
  const auto held = std::ranges::count_if(devices, &api::AdvertisedDevice::held_with_group);
  Explanation out{.title = resource};
  out.add("state", fmt::format("{}, {} healthy, {} allocated to pods{}", counted(devices.size(), "device"),
                               healthy, taken, held == 0 ? "" : fmt::format(", {} held back", held)));
  const api::AdvertisedResource* advertised =
      inputs.snapshot.advertised ? inputs.snapshot.advertised->resource(resource) : nullptr;
  if (advertised != nullptr && advertised->places && !advertised->places->empty())
    out.add("state", counted(advertised->places->size(), "place") + " to ask for together with a GPU");
  if (const auto why = not_served(inputs, resource); !why.empty())
    out.add("state", "allocated to no further pod now: " + why, Tint::attention);
  std::string known;  // a name that may be asked for next
  for (const api::AdvertisedDevice& device : devices) {
    const auto subject = subject_of(inputs, device);
    std::string name;  // empty: the device is not on this host
    if (subject) name = subject->vgpu.empty() ? subject->address.text() : subject->vgpu;
    if (known.empty()) known = name;
    std::string line = device.id;
    if (!name.empty() && name != device.id) line += fmt::format(" ({})", name);
    if (device.allocated) line += device.pod.empty() ? ", allocated" : ", " + allocated_text(device.pod);
    if (!device.healthy) line += (device.held_with_group ? ", " : ", unhealthy: ") + device.reason;
    const bool well = device.healthy || device.held_with_group;
    out.add("devices", std::move(line), well ? Tint::plain : Tint::bad);
  }
  if (!known.empty()) out.add("more", fmt::format("`ferry explain {}` describes one of them", known));
  return out;
}

}  // namespace ferry::cli
