// SPDX-License-Identifier: Apache-2.0
#include "cli/story.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/document.h"
#include "cli/facts_document.h"
#include "cli/status_document.h"
#include "cli/status_text.h"
#include "common/counted.h"
#include "common/suggest.h"
#include "mdev/vgpu_removal.h"
#include "vfio/move_members.h"
#include "vgpu-dm/stable_uuid.h"

namespace ferry {
namespace {

using nlohmann::json;

/// What somebody could type, and what it would do.
struct Way {
  std::string command;
  std::string does;
};

std::string driver_text(const std::optional<std::string>& driver) {
  return driver ? "driver " + *driver : "no driver";
}

StoryPart part(std::string label, std::vector<std::string> texts) {
  StoryPart out{.label = std::move(label), .lines = {}};
  for (std::string& text : texts) out.lines.push_back({.text = std::move(text)});
  return out;
}

// -- where it sits --

std::vector<std::string> place_lines(const StoryInputs& inputs, const PciFunction& function) {
  std::vector<std::string> lines;
  DevicePlace place;
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

StoryPart group_part(const StoryInputs& inputs, const PciFunction& function) {
  StoryPart out{.label = "group", .lines = {}};
  const Inventory& inventory = inputs.sight.inventory;
  if (!function.iommu_group) {
    const auto& none = inputs.view.no_iommu;
    out.lines.push_back(
        {.text = none ? "none: " + none->message : "none: no IOMMU handles it", .tint = Tint::bad});
    if (none && !none->hint.empty()) out.lines.push_back({.text = "hint: " + none->hint, .tint = Tint::dim});
    return out;
  }
  const auto members = inventory.group_of(function);
  // While nothing of the group is on vfio nobody is in anybody's way.
  const bool given = std::ranges::any_of(members, [&](const PciAddress& address) {
    const PciFunction* member = inventory.find(address);
    return member != nullptr && on_vfio_driver(*member);
  });
  const auto blockers =
      given ? viability_blockers(inventory, *function.iommu_group) : std::vector<PciAddress>{};
  out.lines.push_back(
      {.text = fmt::format("IOMMU group {}, {}", *function.iommu_group,
                           members.size() == 1 ? "alone in it" : counted(members.size(), "member"))});
  for (const PciAddress& address : members) {
    const PciFunction* member = inventory.find(address);
    if (member == nullptr || members.size() == 1) continue;
    const bool blocks = std::ranges::find(blockers, address) != blockers.end();
    out.lines.push_back(
        {.text = fmt::format("{}  {}, {}{}", address.text(), kind_of(*member), driver_text(member->driver),
                             blocks ? ": keeps the group from a VM" : ""),
         .tint = Tint::plain});
  }
  return out;
}

// -- how it is linked --

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

// -- why it is as it is --

std::string before(const PriorState& prior) {
  if (prior.kernels_choice) return "it was on vfio before Ferry came";
  return "before that it had " + driver_text(prior.driver);
}

std::vector<std::string> mode_lines(const StoryInputs& inputs, const AcceleratorView& view) {
  std::vector<std::string> lines;
  switch (view.mode) {
    case Mode::passthrough:
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
    case Mode::vgpu:
      lines.push_back(
          fmt::format("it carries {} ({})", counted(view.vgpus.size(), "vGPU"), text(view.framework)));
      break;
    case Mode::host:
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
      inputs.view.wanted
          ? fmt::format("policy {}{}", inputs.view.wanted->policy,
                        inputs.view.wanted->asked_by.empty() ? "" : " (" + inputs.view.wanted->asked_by + ")")
          : std::string();
  if (policy.empty() && inputs.asked_for) {
    lines.push_back(fmt::format(
        "policy {} is asked for (/var/lib/ferry/wanted.json), and ferry hostd has not taken it up",
        *inputs.asked_for));
  } else if (policy.empty()) {
    lines.emplace_back("no policy says what it shall be (/var/lib/ferry/wanted.json)");
  } else if (view.wish && view.wish->wanted) {
    lines.push_back(fmt::format("{} wants it {}", policy, text(*view.wish->wanted)));
  } else {
    lines.push_back(policy + " says nothing of it");
  }
  if (!policy.empty() && !inputs.hostd_runs)
    lines.emplace_back("ferry hostd does not run: nobody keeps it so now");
  return lines;
}

// -- who has it, and under what name --

std::vector<std::string> holder_lines(const std::vector<Holder>& holders) {
  std::vector<std::string> lines;
  std::ranges::transform(holders, std::back_inserter(lines), &Holder::text);
  return lines;
}

std::string allocated_text(const std::string& pod) {
  return pod.empty() ? "allocated to a pod" : "allocated to pod " + pod;
}

// Why the kubelet gives none of it to another pod, whatever the file lists; empty: it does. The file outlives
// its writer.
std::string not_served(const StoryInputs& inputs, const std::string& resource) {
  if (!inputs.plugin_runs) return "ferry plugin does not run";
  if (!inputs.sight.offered) return {};
  if (!inputs.sight.offered->stands_back.empty())
    return "ferry plugin stands back: " + inputs.sight.offered->stands_back;
  const OfferedResource* found = inputs.sight.offered->resource(resource);
  return found == nullptr || found->registered ? std::string() : "the kubelet does not read its list";
}

StoryPart offers_part(const StoryInputs& inputs, const std::vector<OfferedAs>& offers,
                      const std::string& not_offered) {
  StoryPart out{.label = "offered", .lines = {}};
  for (const OfferedAs& offer : offers) {
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
  if (!offers.empty()) {
    if (const auto why = not_served(inputs, offers.front().resource); !why.empty())
      out.lines.push_back({.text = "to no further pod now: " + why, .tint = Tint::attention});
  }
  if (!not_offered.empty()) out.lines.push_back({.text = "not: " + not_offered, .tint = Tint::attention});
  if (out.lines.empty())
    out.lines.push_back(
        {.text = inputs.sight.offered ? "to no pod" : "no device plugin of Ferry's has run here"});
  return out;
}

// -- what would change it --

void add_objections(const AcceleratorView& view, const std::string& so, std::vector<Way>& ways) {
  for (const std::string& reason : view.movable_reasons) ways.push_back({.command = {}, .does = so + reason});
  if (!view.movable_hint.empty()) {
    ways.push_back({.command = {}, .does = "hint: " + view.movable_hint});
  } else if (view.condition.health == Health::bad && view.condition.hint.empty()) {
    ways.push_back({.command = "ferry doctor", .does = "says what of this host stands in the way"});
  }
}

std::string removal_of(const StoryInputs& inputs, const PciAddress& address) {
  const VgpuGpu* gpu = inputs.sight.vgpus.find(address);
  const auto ours = [&](const VgpuDevice& device) { return is_ours(inputs.node, device); };
  return gpu == nullptr ? "" : removal_command(*gpu, ours);
}

std::vector<Way> ways_of(const StoryInputs& inputs, const AcceleratorView& view) {
  const std::string address = view.address().text();
  std::vector<Way> ways;
  for (const Holder& holder : view.holders) {
    if (ways.empty() || ways.back().does != holder.remedy())
      ways.push_back({.command = {}, .does = std::string(holder.remedy())});
  }
  if (inputs.view.wanted && view.wish && view.wish->wanted) {
    const std::string& asked_by = inputs.view.wanted->asked_by;
    ways.push_back({.command = {},
                    .does = fmt::format("ask for another policy{}: what is done by hand, hostd undoes",
                                        asked_by.empty() ? "" : " (" + asked_by + " asked for this one)")});
  }
  switch (view.mode) {
    case Mode::passthrough:
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
    case Mode::vgpu:
      ways.push_back({.command = removal_of(inputs, view.address()), .does = "removes its vGPUs"});
      break;
    case Mode::host:
      if (view.movable) {
        ways.push_back({.command = "ferry vfio bind --device " + address, .does = "gives it away whole"});
      } else {
        add_objections(view, "it cannot be given away whole: ", ways);
      }
      if (view.framework != VgpuFramework::none)
        ways.push_back({.command = "ferry vgpu apply -f FILE", .does = "divides it by a profile"});
      break;
  }
  return ways;
}

StoryPart ways_part(const std::vector<Way>& ways) {
  StoryPart out{.label = "to change", .lines = {}};
  for (const Way& way : ways)
    out.lines.push_back(
        {.text = way.command.empty() ? way.does : fmt::format("`{}` {}", way.command, way.does)});
  return out;
}

StoryPart condition_part(Mode mode, const Condition& condition) {
  StoryPart out{.label = "state",
                .lines = {{.text = fmt::format("{}, {}", text(mode), condition.word),
                           .tint = tint_of(condition.health)}}};
  if (!condition.reason.empty()) out.lines.push_back({.text = condition.reason});
  if (!condition.hint.empty()) out.lines.push_back({.text = "hint: " + condition.hint, .tint = Tint::dim});
  return out;
}

StoryPart vgpus_part(const AcceleratorView& view) {
  StoryPart out{.label = "vGPUs", .lines = {}};
  for (const VgpuPicture& vgpu : view.vgpus) {
    std::vector<std::string> users;
    std::ranges::transform(vgpu.holders, std::back_inserter(users), who);
    out.lines.push_back({.text = fmt::format("{}  {}{}{}", vgpu.device.id.text, vgpu.device.type_name,
                                             users.empty() ? "" : ", in use: ", fmt::join(users, ", "))});
  }
  if (out.lines.empty()) {
    if (view.framework != VgpuFramework::none) {
      out.lines.push_back({.text = fmt::format("none made ({})", text(view.framework))});
    } else {
      out.lines.push_back({.text = "none" + (view.obstacle.empty() ? "" : ": " + view.obstacle)});
    }
  }
  return out;
}

void add_facts(Story& story, const DeviceFacts& facts) {
  if (StoryLine link = link_line(facts.link); !link.text.empty())
    story.parts.push_back({.label = "link", .lines = {std::move(link)}});
  if (facts.power.state)
    story.parts.push_back(
        part("power", {*facts.power.state +
                       (facts.power.runtime_status ? ", " + *facts.power.runtime_status : std::string())}));
  if (facts.reset.methods)
    story.parts.push_back(part(
        "reset", {facts.reset.methods->empty() ? std::string("it was told to use no method")
                                               : fmt::format("{}", fmt::join(*facts.reset.methods, ", "))}));
}

Story of_accelerator(const StoryInputs& inputs, const AcceleratorView& view) {
  Story story{.title = fmt::format("{}  {} ({})", view.address().text(), view.model, view.function.ids()),
              .parts = {}};
  story.parts.push_back(condition_part(view.mode, view.condition));
  story.parts.push_back(part("sits", place_lines(inputs, view.function)));
  story.parts.push_back(group_part(inputs, view.function));
  if (view.facts) add_facts(story, *view.facts);
  story.parts.push_back(part("why", mode_lines(inputs, view)));
  story.parts.push_back(vgpus_part(view));
  auto users = holder_lines(view.holders);
  if (users.empty()) users.emplace_back("nobody that can be seen");
  for (const std::string& unknown : inputs.view.unknown) users.push_back("not known: " + unknown);
  story.parts.push_back(part("used by", std::move(users)));
  story.parts.push_back(offers_part(inputs, view.offers, view.not_offered));
  story.parts.push_back(ways_part(ways_of(inputs, view)));
  if (!inputs.view.notes.empty()) story.parts.push_back(part("notes", inputs.view.notes));
  return story;
}

// -- a function that is no accelerator --

/// The accelerator whose card or group a function is of; nullptr: of none.
const AcceleratorView* gpu_of(const StoryInputs& inputs, const PciFunction& function) {
  if (function.physical_function) return inputs.view.find(*function.physical_function);
  for (const AcceleratorView& view : inputs.view.accelerators)
    if (view.address().same_slot(function.address)) return &view;
  for (const AcceleratorView& view : inputs.view.accelerators)
    if (view.function.iommu_group && view.function.iommu_group == function.iommu_group) return &view;
  return nullptr;
}

const VgpuPicture* vgpu_on(const AcceleratorView& gpu, const PciAddress& function) {
  const auto found = std::ranges::find_if(
      gpu.vgpus, [&](const VgpuPicture& vgpu) { return vgpu.device.parent == function; });
  return found == gpu.vgpus.end() ? nullptr : &*found;
}

std::string relation(const AcceleratorView& gpu, const PciFunction& function) {
  if (function.physical_function) return "a virtual function of " + gpu.address().text();
  if (is_companion(gpu.function, function)) return "of the same card as " + gpu.address().text();
  if (gpu.address().same_slot(function.address)) return "in the same slot as " + gpu.address().text();
  return "of the same IOMMU group as " + gpu.address().text();
}

std::string by_name_text(const NamedView& view) {
  return fmt::format("{}: counted only where it is named, not by `--all` or `devices: all`",
                     view.model.empty() ? view.function.ids() : view.model);
}

std::string virtual_function_text(const NamedView& physical) {
  return fmt::format("a virtual function of {} ({}): it is passed through whole, once a vfio driver has it",
                     physical.function.address.text(),
                     physical.model.empty() ? physical.function.ids() : physical.model);
}

Way way_by_name(const PciFunction& function) {
  const bool away = on_vfio_driver(function);
  return {
      .command = fmt::format("ferry vfio {} --device {}", away ? "unbind" : "bind", function.address.text()),
      .does = away ? "gives it back to the host" : "gives it to VMs"};
}

Story of_function(const StoryInputs& inputs, const PciFunction& function) {
  Story story{.title = fmt::format("{}  {} ({})", function.address.text(), kind_of(function), function.ids()),
              .parts = {}};
  const AcceleratorView* gpu = gpu_of(inputs, function);
  story.parts.push_back(part("state", {driver_text(function.driver)}));
  if (function.problem)
    story.parts.push_back(
        {.label = "problem", .lines = {{.text = function.problem->message, .tint = Tint::bad}}});
  const NamedView* named = inputs.view.find_by_name(function.address);
  const NamedView* physical = inputs.view.find_by_name(function.physical_function.value_or(function.address));
  const bool is_vf = physical != nullptr && function.physical_function;
  story.parts.push_back(
      part("is", {is_vf              ? virtual_function_text(*physical)
                  : named != nullptr ? by_name_text(*named)
                  : gpu == nullptr   ? "no accelerator, and beside none: Ferry never touches it"
                                     : fmt::format("{} ({})", relation(*gpu, function), gpu->model)}));
  story.parts.push_back(part("sits", place_lines(inputs, function)));
  story.parts.push_back(group_part(inputs, function));
  if (gpu != nullptr && function.physical_function) {
    const VgpuPicture* vgpu = vgpu_on(*gpu, function.address);
    story.parts.push_back(part(
        "vGPUs", {vgpu == nullptr ? std::string("none")
                                  : fmt::format("{}  {}", vgpu->device.id.text, vgpu->device.type_name)}));
    story.parts.push_back(offers_part(
        inputs, vgpu == nullptr ? offers_of(inputs.sight, function.address.text(), {}) : vgpu->offers, {}));
  }
  if (named != nullptr) story.parts.push_back(offers_part(inputs, named->offers, named->not_offered));
  const auto holders = inputs.sight.use.of(function.address.text());
  if (!holders.empty())
    story.parts.push_back(part("used by", holder_lines({holders.begin(), holders.end()})));
  if (named != nullptr || is_vf) {
    story.parts.push_back(ways_part({way_by_name(function)}));
  } else if (gpu != nullptr)
    story.parts.push_back(part("to change", {fmt::format("`ferry explain {}` says what its GPU can become",
                                                         gpu->address().text())}));
  return story;
}

// -- a vGPU --

struct FoundVgpu {
  const AcceleratorView* gpu = nullptr;
  const VgpuPicture* vgpu = nullptr;
};
FoundVgpu find_vgpu(const NodePicture& view, const std::string& id) {
  for (const AcceleratorView& gpu : view.accelerators)
    for (const VgpuPicture& vgpu : gpu.vgpus)
      if (vgpu.device.id.text == id) return {.gpu = &gpu, .vgpu = &vgpu};
  return {};
}

Story of_vgpu(const StoryInputs& inputs, const FoundVgpu& found) {
  const VgpuDevice& device = found.vgpu->device;
  Story story{.title = fmt::format("{}  vGPU {}", device.id.text, device.type_name), .parts = {}};
  const bool usable = device.iommu_group && device.driver;
  const bool used = !found.vgpu->holders.empty();
  const bool seen = inputs.sight.use.blind_to(device.id.text).empty();
  story.parts.push_back({.label = "state",
                         .lines = {{.text = used      ? "in use"
                                            : !usable ? "broken: no VM can be given it"
                                            : seen    ? "free"
                                                      : "use unknown",
                                    .tint = usable ? Tint::plain : Tint::bad}}});
  std::vector<std::string> on = {fmt::format("GPU {}, {}", found.gpu->address().text(), found.gpu->model)};
  if (device.parent != found.gpu->address()) on.push_back("its virtual function " + device.parent.text());
  if (device.placement) on.push_back(fmt::format("place {} in its memory", *device.placement));
  if (device.gpu_instance) on.push_back(fmt::format("GPU instance {}", *device.gpu_instance));
  story.parts.push_back(part("on", std::move(on)));
  story.parts.push_back(part("group", {device.iommu_group ? fmt::format("IOMMU group {}", *device.iommu_group)
                                                          : std::string("none: no VM can be given it")}));
  story.parts.push_back(part("driver", {device.driver.value_or("none: no VM can be given it")}));
  if (device.params && !device.params->empty()) story.parts.push_back(part("told", {*device.params}));
  auto users = holder_lines(found.vgpu->holders);
  if (users.empty()) users.emplace_back("nobody that can be seen");
  for (const std::string& unknown : inputs.view.unknown) users.push_back("not known: " + unknown);
  story.parts.push_back(part("used by", std::move(users)));
  story.parts.push_back(offers_part(inputs, found.vgpu->offers, {}));
  std::vector<Way> ways;
  ways.reserve(found.vgpu->holders.size() + 1);
  for (const Holder& holder : found.vgpu->holders)
    ways.push_back({.command = {}, .does = std::string(holder.remedy())});
  ways.push_back({.command = removal_of(inputs, found.gpu->address()),
                  .does = "removes it, with all others of its GPU"});
  story.parts.push_back(ways_part(ways));
  return story;
}

// -- a resource --

std::vector<OfferedToKubelet> devices_of(const StoryInputs& inputs, const std::string& resource) {
  std::vector<OfferedToKubelet> out;
  if (!inputs.sight.offered) return out;
  for (const OfferedToKubelet& device : inputs.sight.offered->devices)
    if (device.resource == resource) out.push_back(device);
  return out;
}

// For Kata an ID is a number, which names nothing that anybody could look at: its group tells what it is.
std::optional<Subject> subject_of(const StoryInputs& inputs, const OfferedToKubelet& device) {
  if (find_vgpu(inputs.view, device.id).vgpu != nullptr)
    return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = {device.id}};
  const auto address = PciAddress::parse(device.id);
  if (address && inputs.sight.inventory.find(*address) != nullptr)
    return Subject{.kind = Subject::Kind::function, .address = *address};
  for (const AcceleratorView& gpu : inputs.view.accelerators) {
    for (const VgpuPicture& vgpu : gpu.vgpus)
      if (vgpu.device.iommu_group == device.iommu_group)
        return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = vgpu.device.id};
    if (gpu.function.iommu_group == device.iommu_group)
      return Subject{.kind = Subject::Kind::function, .address = gpu.address()};
  }
  return std::nullopt;
}

// Empty: it is nothing that is here.
std::string name_of(const StoryInputs& inputs, const OfferedToKubelet& device) {
  const auto subject = subject_of(inputs, device);
  if (!subject) return {};
  return subject->kind == Subject::Kind::vgpu ? subject->vgpu.text : subject->address.text();
}

Story of_resource(const StoryInputs& inputs, const std::string& resource) {
  const auto devices = devices_of(inputs, resource);
  const auto taken = std::ranges::count_if(devices, &OfferedToKubelet::allocated);
  const auto healthy = std::ranges::count_if(devices, &OfferedToKubelet::healthy);
  Story story{.title = resource, .parts = {}};
  const auto held = std::ranges::count_if(devices, &OfferedToKubelet::held_with_group);
  StoryPart state =
      part("state", {fmt::format("{}, {} healthy, {} allocated to pods{}", counted(devices.size(), "device"),
                                 healthy, taken, held == 0 ? "" : fmt::format(", {} held back", held))});
  const OfferedResource* offered = inputs.sight.offered ? inputs.sight.offered->resource(resource) : nullptr;
  if (offered != nullptr && offered->places > 0)
    state.lines.push_back({.text = counted(offered->places, "place") + " to ask for beside a GPU"});
  if (const auto why = not_served(inputs, resource); !why.empty())
    state.lines.push_back({.text = "given to no further pod now: " + why, .tint = Tint::attention});
  story.parts.push_back(std::move(state));
  StoryPart list{.label = "devices", .lines = {}};
  for (const OfferedToKubelet& device : devices) {
    std::string line = device.id;
    if (const auto name = name_of(inputs, device); !name.empty() && name != device.id)
      line += fmt::format(" ({})", name);
    if (device.allocated) line += device.pod.empty() ? ", allocated" : ", " + allocated_text(device.pod);
    if (!device.healthy) line += (device.held_with_group ? ", " : ", unhealthy: ") + device.reason;
    const bool well = device.healthy || device.held_with_group;
    list.lines.push_back({.text = std::move(line), .tint = well ? Tint::plain : Tint::bad});
  }
  if (!list.lines.empty()) story.parts.push_back(std::move(list));
  const auto known = std::ranges::find_if(
      devices, [&](const OfferedToKubelet& device) { return !name_of(inputs, device).empty(); });
  if (known != devices.end())
    story.parts.push_back(
        part("more", {fmt::format("`ferry explain {}` tells of one of them", name_of(inputs, *known))}));
  return story;
}

std::vector<std::string> known_names(const StoryInputs& inputs) {
  std::vector<std::string> names;
  names.reserve(inputs.sight.inventory.functions.size());
  for (const auto& [address, function] : inputs.sight.inventory.functions) names.push_back(address.text());
  for (const AcceleratorView& gpu : inputs.view.accelerators)
    for (const VgpuPicture& vgpu : gpu.vgpus) names.push_back(vgpu.device.id.text);
  if (inputs.sight.offered)
    for (const OfferedResource& resource : inputs.sight.offered->resources) names.push_back(resource.name);
  return names;
}

json place_document(const StoryInputs& inputs, const PciAddress& address) {
  const auto place = inputs.places.find(address);
  if (place == inputs.places.end()) return nullptr;
  const auto& slot = place->second.slot;
  return {{"slot", slot ? json(*slot) : json(nullptr)}, {"above", place->second.above}};
}

json parts_document(const Story& story) {
  json out = json::object();
  for (const StoryPart& part : story.parts) {
    json lines = json::array();
    for (const StoryLine& line : part.lines) lines.push_back(line.text);
    out[part.label] = std::move(lines);
  }
  return out;
}

}  // namespace

StoryLine link_line(const LinkFacts& link) {
  if (!link.current_speed && !link.current_width) return {};
  StoryLine line{.text = link_text(link.current_speed, link.current_width)};
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

Result<Subject> find_subject(const StoryInputs& inputs, const std::string& word) {
  std::string lower = word;
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (find_vgpu(inputs.view, lower).vgpu != nullptr && !PciAddress::parse(lower))
    return Subject{.kind = Subject::Kind::vgpu, .address = {}, .vgpu = {lower}};
  if (inputs.sight.offered && inputs.sight.offered->resource(word) != nullptr)
    return Subject{.kind = Subject::Kind::resource, .address = {}, .resource = word};
  const auto address = PciAddress::parse(word);
  if (address && inputs.sight.inventory.find(*address) != nullptr)
    return Subject{.kind = Subject::Kind::function, .address = *address};
  if (inputs.sight.offered) {
    const auto& devices = inputs.sight.offered->devices;
    const auto offered = std::ranges::find(devices, word, &OfferedToKubelet::id);
    const auto subject = offered == devices.end() ? std::nullopt : subject_of(inputs, *offered);
    if (subject) return *subject;
  }
  const std::string meant = did_you_mean(word, known_names(inputs));
  // A short address: parse() knows its long form.
  const std::string hint = !address && meant.empty() && word.find(':') != std::string::npos
                               ? address.error().hint
                               : "a PCI address, a vGPU's UUID, or a resource's name; `ferry status` lists "
                                 "addresses, with -o json UUIDs and names too";
  return fail(Errc::usage, fmt::format("nothing on this node is called '{}'{}", word, meant), hint);
}

Story story_of(const StoryInputs& inputs, const Subject& subject) {
  switch (subject.kind) {
    case Subject::Kind::vgpu:
      return of_vgpu(inputs, find_vgpu(inputs.view, subject.vgpu.text));
    case Subject::Kind::resource:
      return of_resource(inputs, subject.resource);
    case Subject::Kind::function:
      break;
  }
  if (const AcceleratorView* view = inputs.view.find(subject.address)) return of_accelerator(inputs, *view);
  return of_function(inputs, *inputs.sight.inventory.find(subject.address));
}

json to_json(const StoryInputs& inputs, const Subject& subject) {
  json out;
  switch (subject.kind) {
    case Subject::Kind::function: {
      out["kind"] = "function";
      const PciFunction& function = *inputs.sight.inventory.find(subject.address);
      const AcceleratorView* view = inputs.view.find(subject.address);
      out["function"] = view == nullptr ? to_json(function) : to_json(*view);
      const AcceleratorView* gpu = view == nullptr ? gpu_of(inputs, function) : view;
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
      for (const OfferedToKubelet& device : devices_of(inputs, subject.resource))
        out["devices"].push_back({{"id", device.id},
                                  {"iommu_group", device.iommu_group},
                                  {"healthy", device.healthy},
                                  {"reason", device.reason},
                                  {"allocated", device.allocated},
                                  {"pod", device.pod.empty() ? json(nullptr) : json(device.pod)}});
      break;
    }
  }
  out["story"] = parts_document(story_of(inputs, subject));
  return out;
}

std::string story_text(const Story& story, const Canvas& canvas) {
  constexpr std::size_t kGap = 2;
  std::size_t label = 0;
  for (const StoryPart& part : story.parts) label = std::max(label, width_of(part.label));
  std::string out;
  for (const std::string& line :
       canvas.columns ? wrapped(story.title, *canvas.columns) : std::vector<std::string>{story.title})
    out += tinted(canvas, Tint::heading, line) + "\n";
  for (const StoryPart& part : story.parts) {
    std::string head = part.label;
    for (const StoryLine& line : part.lines) {
      constexpr std::size_t kLeast = 24;
      const std::size_t start = kGap + label + kGap;
      std::vector<std::string> texts = {line.text};
      if (canvas.columns) texts = wrapped(line.text, std::max(*canvas.columns, start + kLeast) - start);
      for (const std::string& text : texts) {
        out += std::string(kGap, ' ') + tinted(canvas, Tint::dim, padded(head, label + kGap)) +
               tinted(canvas, line.tint, text) + "\n";
        head.clear();
      }
    }
  }
  return out;
}

}  // namespace ferry
