// SPDX-License-Identifier: Apache-2.0
#include "cli/output/explanation.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/status_document.h"
#include "cli/output/status_text.h"
#include "common/text/text.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/bind/move_members.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

/// A command that the user could type, and its effect.
struct Way {
  std::string command;
  std::string does;
};

std::string driver_text(const std::optional<std::string>& driver) {
  return driver ? "driver " + *driver : "no driver";
}

ExplanationPart part(std::string label, std::vector<std::string> texts) {
  ExplanationPart out{.label = std::move(label), .lines = {}};
  for (std::string& text : texts) out.lines.push_back({.text = std::move(text)});
  return out;
}

// -- place and IOMMU group --

std::vector<std::string> place_lines(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  std::vector<std::string> lines;
  vfio::DevicePlace place;
  if (const auto known = inputs.places.find(function.address); known != inputs.places.end())
    place = known->second;
  std::vector<std::string> words;
  words.push_back(place.slot ? "slot " + *place.slot : "no named slot");
  words.push_back(function.numa_node ? fmt::format("NUMA node {}", *function.numa_node)
                                     : std::string("no NUMA node is known"));
  lines.push_back(fmt::format("{}", fmt::join(words, ", ")));
  if (!place.above.empty()) lines.push_back(fmt::format("below {}", fmt::join(place.above, " > ")));
  return lines;
}

ExplanationPart group_part(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  ExplanationPart out{.label = "group", .lines = {}};
  const vfio::Inventory& inventory = inputs.sight.inventory;
  if (!function.iommu_group) {
    const auto& none = inputs.view.no_iommu;
    out.lines.push_back(
        {.text = none ? "none: " + none->message : "none: no IOMMU handles it", .tint = Tint::bad});
    if (none && !none->hint.empty()) out.lines.push_back({.text = "hint: " + none->hint, .tint = Tint::dim});
    return out;
  }
  const auto members = inventory.group_of(function);
  // Without a member on vfio no other member blocks the group.
  const bool given = std::ranges::any_of(members, [&](const vfio::PciAddress& address) {
    const vfio::PciFunction* member = inventory.find(address);
    return member != nullptr && vfio::on_vfio_driver(*member);
  });
  const auto blockers =
      given ? vfio::viability_blockers(inventory, *function.iommu_group) : std::vector<vfio::PciAddress>{};
  out.lines.push_back(
      {.text = fmt::format("IOMMU group {}, {}", *function.iommu_group,
                           members.size() == 1 ? "alone in it" : counted(members.size(), "member"))});
  for (const vfio::PciAddress& address : members) {
    const vfio::PciFunction* member = inventory.find(address);
    if (member == nullptr || members.size() == 1) continue;
    const bool blocks = std::ranges::find(blockers, address) != blockers.end();
    out.lines.push_back(
        {.text = fmt::format("{}  {}, {}{}", address.text(), vfio::kind_of(*member),
                             driver_text(member->driver), blocks ? ": keeps the group from a VM" : ""),
         .tint = Tint::plain});
  }
  return out;
}

// -- PCIe link --

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

// -- mode and its reason --

std::string before(const vfio::PriorState& prior) {
  if (prior.kernels_choice) return "it was on vfio before Ferry came";
  return "before that it had " + driver_text(prior.driver);
}

std::vector<std::string> mode_lines(const ExplainInputs& inputs, const host::AcceleratorDescription& view) {
  std::vector<std::string> lines;
  switch (view.mode) {
    case policy::Mode::passthrough:
      if (view.prior) {
        lines.push_back("Ferry gave it away whole; " + before(*view.prior));
      } else if (view.function.driver_override) {
        lines.push_back(
            fmt::format("its driver_override is {}, and Ferry has no record of a move: somebody else did it",
                        *view.function.driver_override));
      } else {
        lines.emplace_back(
            "neither an override nor a record of Ferry's: the driver took it by its IDs (ids= of vfio-pci, "
            "new_id)");
      }
      break;
    case policy::Mode::vgpu:
      lines.push_back(
          fmt::format("it carries {} ({})", counted(view.vgpus.size(), "vGPU"), text(view.framework)));
      break;
    case policy::Mode::host:
      if (view.prior) {
        lines.push_back("Ferry has a record of moving it; " + before(*view.prior));
      } else if (view.function.driver) {
        lines.push_back(
            view.function.driver_override
                ? fmt::format("its driver_override is {}", *view.function.driver_override)
                : fmt::format("the kernel's choice: {} took it when it was found", *view.function.driver));
      } else {
        lines.emplace_back("no driver of the host takes it, or one was taken from it");
      }
      break;
  }
  const std::string policy =
      inputs.view.desired
          ? fmt::format("policy {}{}", inputs.view.desired->policy,
                        inputs.view.desired->source.empty() ? "" : " (" + inputs.view.desired->source + ")")
          : std::string();
  if (policy.empty() && inputs.asked_for) {
    lines.push_back(fmt::format(
        "policy {} is asked for (/var/lib/ferry/desired.json), and ferry hostd has not taken it up",
        *inputs.asked_for));
  } else if (policy.empty()) {
    lines.emplace_back("no policy selects it (/var/lib/ferry/desired.json)");
  } else if (view.status && view.status->desired) {
    lines.push_back(fmt::format("{} wants it {}", policy, text(*view.status->desired)));
  } else {
    lines.push_back(policy + " says nothing of it");
  }
  if (!policy.empty() && !inputs.hostd_runs)
    lines.emplace_back("ferry hostd does not run: nobody keeps it so now");
  return lines;
}

// -- device users and advertised resources --

std::vector<std::string> user_lines(const std::vector<vfio::DeviceUser>& users) {
  std::vector<std::string> lines;
  std::ranges::transform(users, std::back_inserter(lines), &vfio::DeviceUser::text);
  return lines;
}

std::string allocated_text(const std::string& pod) {
  return pod.empty() ? "allocated to a pod" : "allocated to pod " + pod;
}

// The reason why the kubelet allocates none of the resource, even if the file lists it; empty: it allocates.
// The file outlives the plugin that wrote it.
std::string not_served(const ExplainInputs& inputs, const std::string& resource) {
  if (!inputs.plugin_runs) return "ferry plugin does not run";
  if (!inputs.sight.advertised) return {};
  if (!inputs.sight.advertised->standby.empty())
    return "ferry plugin is on standby: " + inputs.sight.advertised->standby;
  const api::AdvertisedResource* found = inputs.sight.advertised->resource(resource);
  return found == nullptr || found->registered ? std::string() : "the kubelet does not read its list";
}

ExplanationPart offers_part(const ExplainInputs& inputs, const std::vector<host::AdvertisedAs>& advertised_as,
                            const std::string& not_advertised) {
  ExplanationPart out{.label = "advertised", .lines = {}};
  for (const host::AdvertisedAs& offer : advertised_as) {
    const std::string who =
        fmt::format("as {}{}", offer.resource, offer.allocated ? ", " + allocated_text(offer.pod) : "");
    if (offer.healthy) {
      out.lines.push_back({.text = who});
    } else if (!offer.sick()) {
      out.lines.push_back({.text = fmt::format("{}, {}", who, offer.reason)});
    } else {
      out.lines.push_back({.text = fmt::format("{}, unhealthy: {}", who, offer.reason), .tint = Tint::bad});
    }
  }
  if (!advertised_as.empty()) {
    if (const auto why = not_served(inputs, advertised_as.front().resource); !why.empty())
      out.lines.push_back({.text = "to no further pod now: " + why, .tint = Tint::attention});
  }
  if (!not_advertised.empty())
    out.lines.push_back({.text = "not: " + not_advertised, .tint = Tint::attention});
  if (out.lines.empty())
    out.lines.push_back(
        {.text = inputs.sight.advertised ? "to no pod" : "no device plugin of Ferry's has run here"});
  return out;
}

// -- commands that would change it --

void add_objections(const host::AcceleratorDescription& view, const std::string& so, std::vector<Way>& ways) {
  for (const std::string& reason : view.movable_reasons) ways.push_back({.command = {}, .does = so + reason});
  if (!view.movable_hint.empty()) {
    ways.push_back({.command = {}, .does = "hint: " + view.movable_hint});
  } else if (view.condition.health == host::Health::bad && view.condition.hint.empty()) {
    ways.push_back({.command = "ferry doctor", .does = "says what of this host stands in the way"});
  }
}

std::string removal_of(const ExplainInputs& inputs, const vfio::PciAddress& address) {
  const mdev::VgpuGpu* gpu = inputs.sight.vgpus.find(address);
  const auto ours = [&](const mdev::VgpuDevice& device) { return vgpu::is_ours(inputs.node, device); };
  return gpu == nullptr ? "" : mdev::removal_command(*gpu, ours);
}

std::vector<Way> ways_of(const ExplainInputs& inputs, const host::AcceleratorDescription& view) {
  const std::string address = view.address().text();
  std::vector<Way> ways;
  for (const vfio::DeviceUser& user : view.users) {
    if (ways.empty() || ways.back().does != user.remedy())
      ways.push_back({.command = {}, .does = std::string(user.remedy())});
  }
  if (inputs.view.desired && view.status && view.status->desired) {
    const std::string& source = inputs.view.desired->source;
    ways.push_back({.command = {},
                    .does = fmt::format("ask for another policy{}: what is done by hand, hostd undoes",
                                        source.empty() ? "" : " (" + source + " asked for this one)")});
  }
  switch (view.mode) {
    case policy::Mode::passthrough:
      if (!view.group_viable && view.movable) {
        ways.push_back({.command = "ferry vfio bind --device " + address,
                        .does = "takes the rest of its card and group along"});
      } else if (!view.group_viable) {
        add_objections(view, "no VM can be given it: ", ways);
      }
      ways.push_back({.command = "ferry vfio unbind --device " + address,
                      .does = view.prior && view.prior->driver ? "gives it back to " + *view.prior->driver
                                                               : "gives it back to the host"});
      break;
    case policy::Mode::vgpu:
      ways.push_back({.command = removal_of(inputs, view.address()), .does = "removes its vGPUs"});
      break;
    case policy::Mode::host:
      if (view.movable) {
        ways.push_back({.command = "ferry vfio bind --device " + address, .does = "gives it away whole"});
      } else {
        add_objections(view, "it cannot be given away whole: ", ways);
      }
      if (view.framework != mdev::VgpuFramework::none)
        ways.push_back({.command = "ferry vgpu apply -f FILE", .does = "divides it by a profile"});
      break;
  }
  return ways;
}

ExplanationPart ways_part(const std::vector<Way>& ways) {
  ExplanationPart out{.label = "to change", .lines = {}};
  for (const Way& way : ways)
    out.lines.push_back(
        {.text = way.command.empty() ? way.does : fmt::format("`{}` {}", way.command, way.does)});
  return out;
}

ExplanationPart condition_part(policy::Mode mode, const host::Condition& condition) {
  ExplanationPart out{.label = "state",
                      .lines = {{.text = fmt::format("{}, {}", text(mode), condition.word),
                                 .tint = tint_of(condition.health)}}};
  if (!condition.reason.empty()) out.lines.push_back({.text = condition.reason});
  if (!condition.hint.empty()) out.lines.push_back({.text = "hint: " + condition.hint, .tint = Tint::dim});
  return out;
}

ExplanationPart vgpus_part(const host::AcceleratorDescription& view) {
  ExplanationPart out{.label = "vGPUs", .lines = {}};
  for (const host::VgpuDescription& vgpu : view.vgpus) {
    std::vector<std::string> users;
    std::ranges::transform(vgpu.users, std::back_inserter(users), who);
    out.lines.push_back({.text = fmt::format("{}  {}{}{}", vgpu.device.id.text, vgpu.device.type_name,
                                             users.empty() ? "" : ", in use: ", fmt::join(users, ", "))});
  }
  if (out.lines.empty()) {
    if (view.framework != mdev::VgpuFramework::none) {
      out.lines.push_back({.text = fmt::format("none made ({})", text(view.framework))});
    } else {
      out.lines.push_back({.text = "none" + (view.obstacle.empty() ? "" : ": " + view.obstacle)});
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
        "reset", {facts.reset.methods->empty() ? std::string("it was told to use no method")
                                               : fmt::format("{}", fmt::join(*facts.reset.methods, ", "))}));
}

Explanation of_accelerator(const ExplainInputs& inputs, const host::AcceleratorDescription& view) {
  Explanation explanation{
      .title = fmt::format("{}  {} ({})", view.address().text(), view.model, view.function.ids()),
      .parts = {}};
  explanation.parts.push_back(condition_part(view.mode, view.condition));
  explanation.parts.push_back(part("sits", place_lines(inputs, view.function)));
  explanation.parts.push_back(group_part(inputs, view.function));
  if (view.facts) add_facts(explanation, *view.facts);
  explanation.parts.push_back(part("why", mode_lines(inputs, view)));
  explanation.parts.push_back(vgpus_part(view));
  auto users = user_lines(view.users);
  if (users.empty()) users.emplace_back("nobody that can be seen");
  for (const std::string& unknown : inputs.view.unknown) users.push_back("not known: " + unknown);
  explanation.parts.push_back(part("used by", std::move(users)));
  explanation.parts.push_back(offers_part(inputs, view.advertised_as, view.not_advertised));
  explanation.parts.push_back(ways_part(ways_of(inputs, view)));
  if (!inputs.view.notes.empty()) explanation.parts.push_back(part("notes", inputs.view.notes));
  return explanation;
}

// -- a function that is no accelerator --

/// The accelerator on the function's card or in its group; nullptr: none.
const host::AcceleratorDescription* gpu_of(const ExplainInputs& inputs, const vfio::PciFunction& function) {
  if (function.physical_function) return inputs.view.find(*function.physical_function);
  for (const host::AcceleratorDescription& view : inputs.view.accelerators)
    if (view.address().same_slot(function.address)) return &view;
  for (const host::AcceleratorDescription& view : inputs.view.accelerators)
    if (view.function.iommu_group && view.function.iommu_group == function.iommu_group) return &view;
  return nullptr;
}

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

std::string by_name_text(const host::NamedDescription& view) {
  return fmt::format("{}: counted only where it is named, not by `--all` or `devices: all`",
                     view.model.empty() ? view.function.ids() : view.model);
}

std::string virtual_function_text(const host::NamedDescription& physical) {
  return fmt::format("a virtual function of {} ({}): it is passed through whole, once a vfio driver has it",
                     physical.function.address.text(),
                     physical.model.empty() ? physical.function.ids() : physical.model);
}

Way way_by_name(const vfio::PciFunction& function) {
  const bool away = vfio::on_vfio_driver(function);
  return {
      .command = fmt::format("ferry vfio {} --device {}", away ? "unbind" : "bind", function.address.text()),
      .does = away ? "gives it back to the host" : "gives it to VMs"};
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
  const host::NamedDescription* named = inputs.view.find_by_name(function.address);
  const host::NamedDescription* physical =
      inputs.view.find_by_name(function.physical_function.value_or(function.address));
  const bool is_vf = physical != nullptr && function.physical_function;
  explanation.parts.push_back(
      part("is", {is_vf              ? virtual_function_text(*physical)
                  : named != nullptr ? by_name_text(*named)
                  : gpu == nullptr   ? "no accelerator, and beside none: Ferry never touches it"
                                     : fmt::format("{} ({})", relation(*gpu, function), gpu->model)}));
  explanation.parts.push_back(part("sits", place_lines(inputs, function)));
  explanation.parts.push_back(group_part(inputs, function));
  if (gpu != nullptr && function.physical_function) {
    const host::VgpuDescription* vgpu = vgpu_on(*gpu, function.address);
    explanation.parts.push_back(part(
        "vGPUs", {vgpu == nullptr ? std::string("none")
                                  : fmt::format("{}  {}", vgpu->device.id.text, vgpu->device.type_name)}));
    explanation.parts.push_back(
        offers_part(inputs,
                    vgpu == nullptr ? host::advertised_as(inputs.sight, function.address.text(), {})
                                    : vgpu->advertised_as,
                    {}));
  }
  if (named != nullptr)
    explanation.parts.push_back(offers_part(inputs, named->advertised_as, named->not_advertised));
  const auto users = inputs.sight.use.of(function.address.text());
  if (!users.empty()) explanation.parts.push_back(part("used by", user_lines({users.begin(), users.end()})));
  if (named != nullptr || is_vf) {
    explanation.parts.push_back(ways_part({way_by_name(function)}));
  } else if (gpu != nullptr)
    explanation.parts.push_back(
        part("to change",
             {fmt::format("`ferry explain {}` says what its GPU can become", gpu->address().text())}));
  return explanation;
}

// -- a vGPU --

struct FoundVgpu {
  const host::AcceleratorDescription* gpu = nullptr;
  const host::VgpuDescription* vgpu = nullptr;
};
FoundVgpu find_vgpu(const host::NodeDescription& view, const std::string& id) {
  for (const host::AcceleratorDescription& gpu : view.accelerators)
    for (const host::VgpuDescription& vgpu : gpu.vgpus)
      if (vgpu.device.id.text == id) return {.gpu = &gpu, .vgpu = &vgpu};
  return {};
}

Explanation of_vgpu(const ExplainInputs& inputs, const FoundVgpu& found) {
  const mdev::VgpuDevice& device = found.vgpu->device;
  Explanation explanation{.title = fmt::format("{}  vGPU {}", device.id.text, device.type_name), .parts = {}};
  const bool usable = device.iommu_group && device.driver;
  const bool used = !found.vgpu->users.empty();
  const bool seen = inputs.sight.use.blind_to(device.id.text).empty();
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
  if (device.params && !device.params->empty()) explanation.parts.push_back(part("told", {*device.params}));
  auto users = user_lines(found.vgpu->users);
  if (users.empty()) users.emplace_back("nobody that can be seen");
  for (const std::string& unknown : inputs.view.unknown) users.push_back("not known: " + unknown);
  explanation.parts.push_back(part("used by", std::move(users)));
  explanation.parts.push_back(offers_part(inputs, found.vgpu->advertised_as, {}));
  std::vector<Way> ways;
  ways.reserve(found.vgpu->users.size() + 1);
  for (const vfio::DeviceUser& user : found.vgpu->users)
    ways.push_back({.command = {}, .does = std::string(user.remedy())});
  ways.push_back({.command = removal_of(inputs, found.gpu->address()),
                  .does = "removes it, with all others of its GPU"});
  explanation.parts.push_back(ways_part(ways));
  return explanation;
}

// -- a resource --

std::vector<api::AdvertisedDevice> devices_of(const ExplainInputs& inputs, const std::string& resource) {
  std::vector<api::AdvertisedDevice> out;
  if (!inputs.sight.advertised) return out;
  for (const api::AdvertisedDevice& device : inputs.sight.advertised->devices)
    if (device.resource == resource) out.push_back(device);
  return out;
}

// Kata's device ID is a number without a meaning for people, so the IOMMU group identifies the device.
std::optional<Subject> subject_of(const ExplainInputs& inputs, const api::AdvertisedDevice& device) {
  if (find_vgpu(inputs.view, device.id).vgpu != nullptr)
    return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = {device.id}};
  const auto address = vfio::PciAddress::parse(device.id);
  if (address && inputs.sight.inventory.find(*address) != nullptr)
    return Subject{.kind = Subject::Kind::function, .address = *address};
  for (const host::AcceleratorDescription& gpu : inputs.view.accelerators) {
    for (const host::VgpuDescription& vgpu : gpu.vgpus)
      if (vgpu.device.iommu_group == device.iommu_group)
        return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = vgpu.device.id};
    if (gpu.function.iommu_group == device.iommu_group)
      return Subject{.kind = Subject::Kind::function, .address = gpu.address()};
  }
  return std::nullopt;
}

// Empty: the device is not on this host.
std::string name_of(const ExplainInputs& inputs, const api::AdvertisedDevice& device) {
  const auto subject = subject_of(inputs, device);
  if (!subject) return {};
  return subject->kind == Subject::Kind::vgpu ? subject->vgpu.text : subject->address.text();
}

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
      inputs.sight.advertised ? inputs.sight.advertised->resource(resource) : nullptr;
  if (advertised != nullptr && advertised->places && !advertised->places->empty())
    state.lines.push_back(
        {.text = counted(advertised->places->size(), "place") + " to ask for beside a GPU"});
  if (const auto why = not_served(inputs, resource); !why.empty())
    state.lines.push_back({.text = "given to no further pod now: " + why, .tint = Tint::attention});
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
        part("more", {fmt::format("`ferry explain {}` tells of one of them", name_of(inputs, *known))}));
  return explanation;
}

std::vector<std::string> known_names(const ExplainInputs& inputs) {
  std::vector<std::string> names;
  names.reserve(inputs.sight.inventory.functions.size());
  for (const auto& [address, function] : inputs.sight.inventory.functions) names.push_back(address.text());
  for (const host::AcceleratorDescription& gpu : inputs.view.accelerators)
    for (const host::VgpuDescription& vgpu : gpu.vgpus) names.push_back(vgpu.device.id.text);
  if (inputs.sight.advertised)
    for (const api::AdvertisedResource& resource : inputs.sight.advertised->resources)
      names.push_back(resource.name);
  return names;
}

json place_document(const ExplainInputs& inputs, const vfio::PciAddress& address) {
  const auto place = inputs.places.find(address);
  if (place == inputs.places.end()) return nullptr;
  const auto& slot = place->second.slot;
  return {{"slot", slot ? json(*slot) : json(nullptr)}, {"above", place->second.above}};
}

json parts_document(const Explanation& explanation) {
  json out = json::object();
  for (const ExplanationPart& part : explanation.parts) {
    json lines = json::array();
    for (const ExplanationLine& line : part.lines) lines.push_back(line.text);
    out[part.label] = std::move(lines);
  }
  return out;
}

}  // namespace

ExplanationLine link_line(const vfio::LinkFacts& link) {
  if (!link.current_speed && !link.current_width) return {};
  ExplanationLine line{.text = link_text(link.current_speed, link.current_width)};
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

Result<Subject> find_subject(const ExplainInputs& inputs, const std::string& word) {
  const std::string small = lower(word);
  if (find_vgpu(inputs.view, small).vgpu != nullptr && !vfio::PciAddress::parse(small))
    return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = {small}};
  if (inputs.sight.advertised && inputs.sight.advertised->resource(word) != nullptr)
    return Subject{.kind = Subject::Kind::resource, .address = {}, .resource = word};
  const auto address = vfio::PciAddress::parse(word);
  if (address && inputs.sight.inventory.find(*address) != nullptr)
    return Subject{.kind = Subject::Kind::function, .address = *address};
  if (inputs.sight.advertised) {
    const auto& devices = inputs.sight.advertised->devices;
    const auto advertised = std::ranges::find(devices, word, &api::AdvertisedDevice::id);
    const auto subject = advertised == devices.end() ? std::nullopt : subject_of(inputs, *advertised);
    if (subject) return *subject;
  }
  const std::string meant = did_you_mean(word, known_names(inputs));
  // The hint of parse() has the long form of a short address.
  const std::string hint = !address && meant.empty() && word.find(':') != std::string::npos
                               ? address.error().hint
                               : "a PCI address, a vGPU's UUID, or a resource's name; `ferry status` lists "
                                 "addresses, with -o json UUIDs and names too";
  return fail(Errc::usage, fmt::format("nothing on this node is called '{}'{}", word, meant), hint);
}

Explanation explanation_of(const ExplainInputs& inputs, const Subject& subject) {
  switch (subject.kind) {
    case Subject::Kind::vgpu:
      return of_vgpu(inputs, find_vgpu(inputs.view, subject.vgpu.text));
    case Subject::Kind::resource:
      return of_resource(inputs, subject.resource);
    case Subject::Kind::function:
      break;
  }
  if (const host::AcceleratorDescription* view = inputs.view.find(subject.address))
    return of_accelerator(inputs, *view);
  return of_function(inputs, *inputs.sight.inventory.find(subject.address));
}

json to_json(const ExplainInputs& inputs, const Subject& subject) {
  json out;
  switch (subject.kind) {
    case Subject::Kind::function: {
      out["kind"] = "function";
      const vfio::PciFunction& function = *inputs.sight.inventory.find(subject.address);
      const host::AcceleratorDescription* view = inputs.view.find(subject.address);
      out["function"] = view == nullptr ? to_json(function) : to_json(*view);
      const host::AcceleratorDescription* gpu = view == nullptr ? gpu_of(inputs, function) : view;
      out["accelerator"] = gpu == nullptr ? json(nullptr) : json(gpu->address().text());
      out["place"] = place_document(inputs, subject.address);
      json ways = json::array();
      if (view != nullptr) {
        for (const Way& way : ways_of(inputs, *view))
          ways.push_back(
              {{"command", way.command.empty() ? json(nullptr) : json(way.command)}, {"does", way.does}});
      } else if (inputs.view.find_by_name(subject.address) != nullptr) {
        const Way way = way_by_name(function);
        ways.push_back({{"command", way.command}, {"does", way.does}});
      }
      out["ways"] = std::move(ways);
      break;
    }
    case Subject::Kind::vgpu: {
      out["kind"] = "vgpu";
      if (const FoundVgpu found = find_vgpu(inputs.view, subject.vgpu.text); found.vgpu != nullptr) {
        out["vgpu"] = to_json(*found.vgpu);
        out["accelerator"] = found.gpu->address().text();
      }
      break;
    }
    case Subject::Kind::resource: {
      out["kind"] = "resource";
      out["resource"] = subject.resource;
      out["devices"] = json::array();
      for (const api::AdvertisedDevice& device : devices_of(inputs, subject.resource))
        out["devices"].push_back({{"id", device.id},
                                  {"iommu_group", device.iommu_group},
                                  {"healthy", device.healthy},
                                  {"reason", device.reason},
                                  {"allocated", device.allocated},
                                  {"pod", device.pod.empty() ? json(nullptr) : json(device.pod)}});
      break;
    }
  }
  out["story"] = parts_document(explanation_of(inputs, subject));
  return out;
}

std::string explanation_text(const Explanation& explanation, const TextOutput& output) {
  constexpr std::size_t kGap = 2;
  std::size_t label = 0;
  for (const ExplanationPart& part : explanation.parts) label = std::max(label, width_of(part.label));
  std::string out;
  for (const std::string& line : output.columns ? wrapped(explanation.title, *output.columns)
                                                : std::vector<std::string>{explanation.title})
    out += tinted(output, Tint::heading, line) + "\n";
  for (const ExplanationPart& part : explanation.parts) {
    std::string head = part.label;
    for (const ExplanationLine& line : part.lines) {
      constexpr std::size_t kLeast = 24;
      const std::size_t start = kGap + label + kGap;
      std::vector<std::string> texts = {line.text};
      if (output.columns) texts = wrapped(line.text, std::max(*output.columns, start + kLeast) - start);
      for (const std::string& text : texts) {
        out += std::string(kGap, ' ') + tinted(output, Tint::dim, padded(head, label + kGap)) +
               tinted(output, line.tint, text) + "\n";
        head.clear();
      }
    }
  }
  return out;
}

}  // namespace ferry::cli
