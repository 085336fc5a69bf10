// SPDX-License-Identifier: Apache-2.0
#include "host/node_observation.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "host/gpu_numbers.h"
#include "host/sanitize/gpu_history.h"
#include "host/usage/use_probes.h"
#include "hostfs/stuck_writes.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/bind/fence.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/quiesce/release.h"
#include "vfio/quiesce/stopped_services.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

/// Questions about everything that may keep a GPU from a change.
std::vector<vfio::UseQuestion> questions_about(const HostFs& host, const ScannedNode& node,
                                               const vfio::PciAddress& gpu) {
  if (node.inventory.find(gpu) == nullptr) return {};  // unplugged since
  auto questions = vfio::use_questions(host, node.inventory, vfio::concerned(node.inventory, {gpu}));
  const mdev::VgpuGpu* divided = node.vgpus.find(gpu);
  if (divided == nullptr) return questions;
  for (const mdev::VgpuDevice& vgpu : divided->devices) questions.push_back(mdev::use_question(vgpu));
  for (vfio::UseQuestion& question : vfio::use_questions(host, node.inventory, divided->functions))
    if (std::ranges::find(questions, question.device, &vfio::UseQuestion::device) == questions.end())
      questions.push_back(std::move(question));
  return questions;
}

std::vector<vfio::DeviceUser> users_of(const HostFs& host, const ScannedNode& node, vfio::UseProbe& uses,
                                       const vfio::PciAddress& gpu) {
  std::vector<vfio::DeviceUser> users;
  const auto questions = questions_about(host, node, gpu);
  const auto report = uses.look(questions);
  if (!report) return users;
  for (const vfio::UseQuestion& question : questions)
    for (const vfio::DeviceUser& user : report->of(question.device))
      if (std::ranges::find(users, user) == users.end()) users.push_back(user);
  return users;
}

struct Binding {
  std::string ids;
  std::string driver;  ///< empty: none
};

/// The GPUs, and the functions that change drivers with them.
std::map<vfio::PciAddress, Binding> bindings_of(const ScannedNode& node) {
  std::vector<vfio::PciAddress> gpus;
  for (const mdev::VgpuGpu& gpu : node.vgpus.gpus) gpus.push_back(gpu.address());
  std::map<vfio::PciAddress, Binding> out;
  for (const vfio::PciAddress& address : vfio::concerned(node.inventory, gpus))
    if (const vfio::PciFunction& function = *node.inventory.find(address); !function.is_virtual_function())
      out.emplace(address, Binding{.ids = function.ids(), .driver = function.driver.value_or("")});
  return out;
}

/// True for a user that ends with its pod, VM or process. Other parts of the host are judged when a claim
/// binds the GPU.
bool is_temporary(const vfio::DeviceUser& user) {
  using Kind = vfio::DeviceUser::Kind;
  switch (user.kind) {
    case Kind::process:
    case Kind::virtual_machine:
    case Kind::pod:
    case Kind::attached:
    case Kind::resource_claim:
      return true;
    case Kind::boot_display:
    case Kind::framebuffer:
    case Kind::fabric:
    case Kind::console:
      break;
  }
  return false;
}

}  // namespace

Result<ScannedNode> scan_node(const NodeContext& context, BusWatch* watch, const policy::Policy* policy) {
  const vfio::AcceleratorRules& rules = context.rebind_context.rules;
  auto inventory = vfio::scan(context.fs());
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = vgpu::scan_known_vgpus(context.fs(), *inventory, rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  ScannedNode node{
      .inventory = std::move(*inventory), .vgpus = std::move(*vgpus), .machine = machine_name(context.fs())};
  vfio::read_unit_facts(context.fs(), rules, node.inventory);

  std::map<vfio::PciAddress, std::string> errors;
  std::set<vfio::PciAddress> for_dra;
  if (watch != nullptr) {
    std::set<vfio::PciAddress> asked = context.dra;
    if (policy != nullptr) {
      // If the numbers cannot be resolved, the caller changes nothing.
      const auto numbered = resolve_numbers(context.fs(), *policy, node.vgpus);
      const policy::ResolvedPolicy resolved =
          numbered ? policy::resolve(numbered->policy, node.vgpus, context.models) : policy::ResolvedPolicy();
      for (const auto& [gpu, mode] : resolved.modes)
        if (mode == policy::Mode::passthrough) asked.insert(gpu);
      for (const auto& [gpu, allowed] : resolved.for_dra) for_dra.insert(gpu);
      asked.insert(for_dra.begin(), for_dra.end());
    }
    std::erase_if(asked, [&](const vfio::PciAddress& gpu) { return node.inventory.find(gpu) == nullptr; });
    const auto members = vfio::concerned(node.inventory, {asked.begin(), asked.end()});
    watch->bus.look(context.fs(), members, node.inventory);
    for (mdev::VgpuGpu& gpu : node.vgpus.gpus) gpu.function = *node.inventory.find(gpu.address());
    for (const auto& [address, function] : node.inventory.functions) {
      if (!vfio::on_vfio_driver(function)) continue;  // companions count with their GPU
      if (std::string problem = watch->errors.problem(context.fs(), address); !problem.empty())
        errors.emplace(address, std::move(problem));
    }
  }
  const auto stuck =
      vfio::stuck_functions(stuck_writes(context.fs()).value_or(std::vector<StuckWrite>{}), node.inventory);
  const auto journal = vfio::read_undo_journal(context.fs());
  const auto open_modes = vfio::open_modes(context.fs(), node.inventory);
  auto unsanitized = unsanitized_gpus(context.fs());
  if (!unsanitized) {
    // hostd's status has the error for the GPUs of the device plugin; each claim is refused with it.
    const std::string why = unsanitized.error().message;
    unsanitized.emplace();
    for (const vfio::PciAddress& gpu : for_dra) unsanitized->emplace(gpu, why);
  }
  const auto fabric = users_of_shared_switches(context.fs(), node.inventory, rules);
  std::set<vfio::PciAddress> more = context.dra;
  for (const auto& [address, function] : node.inventory.functions)
    if (fabric && fabric->users.contains(address.text())) more.insert(address);
  node.findings = vfio::judge_all(node.inventory, rules,
                                  {.use = fabric ? &*fabric : nullptr,
                                   .stuck = &stuck,
                                   .unreadable_records = journal ? &journal->unreadable : nullptr,
                                   .unsanitized = &*unsanitized,
                                   .open_modes = &open_modes,
                                   .fatal_errors = watch != nullptr ? &errors : nullptr},
                                  {.all_shed = true}, more);
  return node;
}

bool is_outdated(const NodePreview& plan, const ScannedNode& planned, const ScannedNode& now) {
  std::map<vfio::PciAddress, std::string> own;  // the drivers that the plan gives
  for (const auto* rebinds : {&plan.unbound.plan.rebinds, &plan.bound.plan.rebinds})
    for (const vfio::Rebind& rebind : *rebinds)
      for (const vfio::Member& member : rebind.members)
        if (member.driver_before != member.driver_after) own.emplace(member.address, member.driver_after);
  const auto before = bindings_of(planned);
  const auto after = bindings_of(now);
  // A failure may leave a function without a driver.
  const auto is_own = [&](const vfio::PciAddress& address, const std::string& driver) {
    const auto given = own.find(address);
    return given != own.end() &&
           (driver.empty() || driver == given->second || given->second == vfio::kKernelsChoice);
  };
  return before.size() != after.size() || std::ranges::any_of(after, [&](const auto& entry) {
           const auto& [address, binding] = entry;
           const auto was = before.find(address);
           return was == before.end() || was->second.ids != binding.ids ||
                  (was->second.driver != binding.driver && !is_own(address, binding.driver));
         });
}

bool has_leftovers(const NodeContext& context, const vfio::Inventory* scanned) {
  const auto services = vfio::has_services_to_start(context.rebind_context, scanned);
  const auto locks = vfio::recorded_locks(context.fs());
  return !services || *services || !locks || !locks->empty();
}

bool has_leftovers(const NodeContext& context, const ScannedNode& node) {
  const auto gone = vgpu::recorded_functions_gone(context.fs(), node.vgpus);
  return has_leftovers(context, &node.inventory) || (gone && !gone->empty());
}

void add_users(const HostFs& host, const ScannedNode& node, vfio::UseProbe& uses, GpuConditions& conditions) {
  for (auto& [gpu, condition] : conditions)
    if (condition.state == api::GpuState::blocked && condition.users.empty())
      condition.users = users_of(host, node, uses, gpu);
}

GpuUse use_of(const HostFs& host, const ScannedNode& node, vfio::UseProbe& uses, const vfio::PciAddress& gpu,
              const std::set<std::string>& release) {
  GpuUse out;
  const auto questions = questions_about(host, node, gpu);
  const auto report = uses.look(questions);
  if (!report) {
    out.reasons.push_back(report.error().message);
    return out;
  }
  for (const vfio::UseQuestion& question : questions) {
    if (const auto why = report->blind_to(question.device); !why.empty())
      out.reasons.push_back(
          fmt::format("Ferry cannot find out whether {} is in use: {}", question.device, why));
    for (const vfio::DeviceUser& user : report->of(question.device)) {
      if (!is_temporary(user) || vfio::may_release(user, release, gpu)) continue;
      out.reasons.push_back(fmt::format("{} is in use: {}", question.device, user.text()));
      if (std::ranges::find(out.users, user) == out.users.end()) out.users.push_back(user);
    }
  }
  return out;
}

std::map<vfio::PciAddress, std::vector<vfio::DeviceUser>> users_of_listed(
    const HostFs& host, const ScannedNode& node, vfio::UseProbe& uses, const GpuConditions& conditions,
    const std::set<std::string>& asked, const api::AdvertisedResources& listed) {
  std::map<vfio::PciAddress, std::vector<vfio::DeviceUser>> out;
  const auto is_listed = [&](const vfio::UseQuestion& question) {
    return asked.contains(question.device) && find_device(host, listed, question.device) != nullptr;
  };
  for (const auto& [gpu, condition] : conditions)
    if (condition.state == api::GpuState::pending &&
        std::ranges::any_of(questions_about(host, node, gpu), is_listed))
      out.emplace(gpu, users_of(host, node, uses, gpu));
  return out;
}

}  // namespace ferry::host
