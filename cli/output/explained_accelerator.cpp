// SPDX-License-Identifier: Apache-2.0
// The explanation of an accelerator.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output/explanation_parts.h"
#include "cli/output/status_text.h"
#include "common/text/text.h"
#include "mdev/framework.h"

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

void add_objections(const host::AcceleratorDescription& description, const std::string& so,
                    std::vector<Way>& ways) {
  for (const std::string& reason : description.movable_reasons)
    ways.push_back({.command = {}, .does = so + reason});
  if (!description.movable_hint.empty()) {
    ways.push_back({.command = {}, .does = "hint: " + description.movable_hint});
  } else if (description.condition.health == host::Health::bad && description.condition.hint.empty()) {
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

ExplanationPart vgpus_part(const host::AcceleratorDescription& description) {
  ExplanationPart out{.label = "vGPUs", .lines = {}};
  for (const host::VgpuDescription& vgpu : description.vgpus) {
    std::vector<std::string> users;
    std::ranges::transform(vgpu.users, std::back_inserter(users), who);
    out.lines.push_back({.text = fmt::format("{}  {}{}{}", vgpu.device.id.text, vgpu.device.type_name,
                                             users.empty() ? "" : ", in use: ", fmt::join(users, ", "))});
  }
  if (out.lines.empty()) {
    if (description.framework->makes_vgpus()) {
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
      if (!description.group_viable && description.movable) {
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
      if (description.movable) {
        ways.push_back(
            {.command = "ferry vfio bind --device " + address, .does = "binds it to vfio, for a VM"});
      } else {
        add_objections(description, "it cannot be bound to vfio: ", ways);
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

}  // namespace ferry::cli
