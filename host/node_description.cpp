// SPDX-License-Identifier: Apache-2.0
#include "host/node_description.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "common/text/words.h"
#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "policy/policy_comparison.h"
#include "vfio/bind/driver_modules.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::host {
namespace {

std::vector<vfio::DeviceUser> users_of(const NodeSnapshot& snapshot, const vfio::PciFunction& function) {
  std::vector<vfio::DeviceUser> out;
  const auto add = [&](const std::string& device) {
    for (const vfio::DeviceUser& user : snapshot.use.of(device)) {
      if (std::ranges::find(out, user) == out.end()) out.push_back(user);
    }
  };
  for (const vfio::PciAddress& member : snapshot.inventory.group_of(function)) add(member.text());
  if (const mdev::VgpuGpu* gpu = snapshot.vgpus.find(function.address)) {
    for (const mdev::VgpuDevice& device : gpu->devices) add(device.id.text);
  }
  return out;
}

std::vector<MemberDescription> members_of(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                                          const vfio::PciFunction& function) {
  std::vector<MemberDescription> out;
  for (const vfio::PciAddress& address : snapshot.inventory.group_of(function)) {
    const vfio::PciFunction* other = snapshot.inventory.find(address);
    if (address == function.address || other == nullptr) continue;
    out.push_back({.function = *other,
                   .what = vfio::kind_of(*other),
                   .accelerator = rules.match(*other),
                   .blocks = vfio::blocks_viability(*other)});
  }
  return out;
}

std::vector<std::string> texts_of(const std::vector<const vfio::Finding*>& findings) {
  std::vector<std::string> out;
  for (const vfio::Finding* finding : findings) out.push_back(finding->text);
  return out;
}

std::string advice_of(const std::vector<const vfio::Finding*>& findings) {
  const auto with_advice =
      std::ranges::find_if(findings, [](const vfio::Finding* finding) { return !finding->advice.empty(); });
  return with_advice == findings.end() ? std::string() : (*with_advice)->advice;
}

/// Takes hostd's findings for facts that this process has not looked at.
/// `when`: "as ferry hostd saw it 12 s ago".
void ask_hostd(const std::vector<api::ReportedFinding>& hostd, const std::string& when,
               std::vector<vfio::Finding>& findings) {
  std::vector<vfio::Finding> seen;
  std::erase_if(findings, [&](const vfio::Finding& finding) {
    if (finding.answer != vfio::Answer::not_looked || finding.rule == vfio::RuleId::in_use) return false;
    const auto reported = std::ranges::find_if(hostd, [&](const api::ReportedFinding& one) {
      return one.rule == vfio::rule(finding.rule).name && one.about == finding.about;
    });
    if (reported == hostd.end()) return true;  // hostd has looked, and found nothing
    if (reported->answer != vfio::Answer::yes) return false;
    vfio::Finding taken = finding;
    taken.answer = vfio::Answer::yes;
    taken.text = fmt::format("{} ({})", reported->text, when);
    taken.advice = reported->advice;
    seen.push_back(std::move(taken));
    return true;
  });
  findings.insert(findings.begin(), seen.begin(), seen.end());
  std::ranges::stable_sort(findings, {}, [](const vfio::Finding& finding) {
    return std::pair(finding.answer != vfio::Answer::yes, finding.rule);
  });
}

void add_outlook(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                 AcceleratorDescription& description) {
  const vfio::PciFunction& function = description.function;
  if (function.iommu_group)
    description.group_blockers = vfio::viability_blockers(snapshot.inventory, *function.iommu_group);
  description.group_viable =
      snapshot.inventory.has_iommu() && function.iommu_group && description.group_blockers.empty();
  description.not_viable = texts_of(vfio::obstacles_to(description.findings, vfio::Blocks::prepare));

  const auto carriers = mdev::carriers_of_vgpus(snapshot.vgpus);
  const auto stuck = vfio::stuck_functions(snapshot.stuck, snapshot.inventory);
  const std::vector<vfio::Unit> alone = vfio::units_of(snapshot.inventory, {function.address}, {});
  const bool changes = std::ranges::any_of(alone.front().functions, [&](const vfio::PciAddress& address) {
    const vfio::PciFunction& member = *snapshot.inventory.find(address);
    return !vfio::on_vfio_driver(member) &&
           vfio::changes_driver(vfio::member_of(snapshot.inventory, alone.front(), {}, rules, member).role);
  });
  auto findings = vfio::judge(
      alone.front(), snapshot.inventory, rules,
      {.stuck = &stuck, .unreadable_records = &snapshot.journal.unreadable, .carriers = &carriers});
  std::erase_if(findings, [&](const vfio::Finding& finding) {
    return finding.rule == vfio::RuleId::in_use || finding.answer != vfio::Answer::yes ||
           !finding.blocks(vfio::Blocks::bind) || (!changes && vfio::rule(finding.rule).of_a_change);
  });
  description.bindable = findings.empty();
  std::vector<const vfio::Finding*> against;
  for (const vfio::Finding& finding : findings) against.push_back(&finding);
  description.bindable_reasons = texts_of(against);
  description.bindable_hint = advice_of(against);
}

/// The condition by the gravest obstacle; the reason names all of its kind.
Condition of_obstacle(const std::vector<const vfio::Finding*>& obstacles, Health health) {
  const vfio::Rule& gravest = vfio::rule(obstacles.front()->rule);
  return {.word = std::string(gravest.word),
          .health = health,
          .reason = fmt::format("{}", fmt::join(texts_of(obstacles), "; ")),
          .hint = advice_of(obstacles)};
}

// The host status comes before the observed state, since hostd knows the desired state.
std::optional<Condition> of_status(const api::AcceleratorStatus& status) {
  const std::string hint =
      status.hint.empty() ? "ferry hostd tries again by itself; its log says what it has tried" : status.hint;
  switch (status.state) {
    case api::GpuState::failed:
      return Condition{.word = "failed", .health = Health::bad, .reason = status.reason, .hint = hint};
    case api::GpuState::blocked:
      return Condition{.word = "blocked", .health = Health::bad, .reason = status.reason, .hint = hint};
    case api::GpuState::pending:
      return Condition{
          .word = "pending", .health = Health::attention, .reason = status.reason, .hint = status.hint};
    case api::GpuState::ready:
    case api::GpuState::unmanaged:
      break;
  }
  return std::nullopt;
}

// An empty list of users proves nothing if users may have been missed.
Condition free_as_far_as_seen(const NodeSnapshot& snapshot, const AcceleratorDescription& description) {
  std::string_view why = snapshot.use.blind_to(description.address().text());
  for (const MemberDescription& member : description.members)
    if (why.empty()) why = snapshot.use.blind_to(member.function.address.text());
  if (why.empty()) return {.word = "free"};
  return {.word = "use unknown",
          .health = Health::attention,
          .reason = fmt::format("no device user was found, but Ferry cannot see all of them: {}", why),
          .hint = std::string(snapshot.use.remedy_of_blindness())};
}

Condition of_use(const NodeSnapshot& snapshot, const AcceleratorDescription& description) {
  if (!description.users.empty()) return {.word = "in use"};
  return free_as_far_as_seen(snapshot, description);
}

/// The GPU that a reason names, by itself or by a function of its card: it may be another one of the group.
std::string gpu_of(const std::string& reason, const AcceleratorDescription& description) {
  const auto named = std::ranges::find_if(description.members, [&](const MemberDescription& member) {
    return reason.starts_with(member.function.address.text());
  });
  for (const MemberDescription& gpu : description.members)
    if (named != description.members.end() && gpu.accelerator &&
        (&gpu == &*named || vfio::is_companion(gpu.function, named->function)))
      return gpu.function.address.text();
  return description.address().text();
}

Condition of_passthrough(const NodeSnapshot& snapshot, const AcceleratorDescription& description) {
  if (const auto obstacles = vfio::obstacles_to(description.findings, vfio::Blocks::allocate);
      !obstacles.empty())
    return of_obstacle({obstacles.front()}, Health::bad);
  const auto is_sick = [](const api::AdvertisedDevice& device) {
    return !device.healthy && !device.held_with_group;
  };
  const auto sick = std::ranges::find_if(description.advertised_as, is_sick);
  if (sick != description.advertised_as.end())
    return {
        .word = "unhealthy",
        .health = Health::bad,
        .reason = sick->reason,
        .hint = fmt::format("it is advertised again when that is over; an error of PCIe counts until it is "
                            "bound anew: `ferry vfio unbind --device {0}`, then `bind --device {0}`",
                            gpu_of(sick->reason, description))};
  if (std::ranges::any_of(description.advertised_as, &api::AdvertisedDevice::held_with_group))
    return {.word = "in use"};
  return of_use(snapshot, description);
}

Condition of_vgpu(const NodeSnapshot& snapshot, const AcceleratorDescription& description) {
  const auto used = std::ranges::count_if(description.vgpus,
                                          [](const VgpuDescription& vgpu) { return !vgpu.users.empty(); });
  const auto lost = std::ranges::find_if(description.vgpus, [](const VgpuDescription& vgpu) {
    return !vgpu.device.iommu_group || !vgpu.device.driver;
  });
  if (lost != description.vgpus.end())
    return {.word = "unusable",
            .health = Health::bad,
            .reason = fmt::format("vGPU {} has no {}: no VM can be given it", lost->device.id.text,
                                  lost->device.driver ? "IOMMU group" : "driver"),
            .hint = "removed and made again, it may get one: `ferry vgpu delete`, then `apply`"};
  if (used > 0) return {.word = fmt::format("{} in use", used)};
  return free_as_far_as_seen(snapshot, description);
}

// A GPU that is there for vGPUs is free, even if no VM can be given it whole.
Condition of_host_mode(const NodeSnapshot& snapshot, const AcceleratorDescription& description) {
  // The files of SR-IOV alone do not show it: VMs may get the GPU whole, or the driver offers no types.
  const bool has_functions = !description.vgpus.empty() || description.function.sriov_numvfs > 0;
  const bool is_for_vgpus =
      description.framework->makes_vgpus() &&
      (description.framework->binds_functions() ? has_functions : description.obstacle.empty());
  if (!description.users.empty() || is_for_vgpus) return of_use(snapshot, description);
  if (description.status && description.status->desired == policy::Mode::vgpu &&
      !description.obstacle.empty())
    return {.word = description.host_driver ? "no vGPU types" : "no vGPU host driver",
            .health = Health::attention,
            .reason = description.obstacle,
            .hint = "`ferry doctor --for vgpu` lists what is missing"};
  if (const auto obstacles = vfio::obstacles_to(description.findings, vfio::Blocks::prepare);
      !obstacles.empty())
    return of_obstacle(obstacles, Health::attention);
  if (const auto none = vfio::no_host_driver(description.function))
    return {.word = description.function.driver ? "held" : "no driver",
            .health = Health::attention,
            .reason = none->message};
  return of_use(snapshot, description);
}

Condition condition_of(const NodeSnapshot& snapshot, const AcceleratorDescription& description) {
  if (const vfio::Finding* illness = vfio::illness_of(description.function, description.findings)) {
    Condition condition = of_obstacle({illness}, Health::bad);
    for (const StuckWrite& act : snapshot.stuck)
      if (illness->rule == vfio::RuleId::stuck_write && concerns(act, illness->about.text()))
        condition.reason += fmt::format(": {} (pid {})", act.act, act.pid);
    return condition;
  }
  // The host status may be outdated: it does not apply to a GPU whose mode or driver has changed since.
  if (description.status && description.status->mode == description.mode &&
      description.status->driver == description.function.driver) {
    if (auto condition = of_status(*description.status)) return *condition;
  }
  if (!description.vgpu_problem.empty())
    return {.word = "vGPUs unknown",
            .health = Health::attention,
            .reason = "it may carry vGPUs that cannot be read: " + description.vgpu_problem,
            .hint = "Ferry makes and removes no vGPU of it meanwhile"};
  switch (description.mode) {
    case policy::Mode::passthrough:
      return of_passthrough(snapshot, description);
    case policy::Mode::vgpu:
      return of_vgpu(snapshot, description);
    case policy::Mode::host:
      break;
  }
  return of_host_mode(snapshot, description);
}

policy::Mode mode_of(const NodeSnapshot& snapshot, const vfio::PciFunction& function) {
  if (const mdev::VgpuGpu* gpu = snapshot.vgpus.find(function.address)) return ferry::policy::mode_of(*gpu);
  return vfio::on_vfio_driver(function) ? policy::Mode::passthrough : policy::Mode::host;
}

/// True for an accelerator, and for a function that could be named as one.
bool may_be_named(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules,
                  const vfio::PciFunction& function) {
  return rules.match_by_name(function) ||
         (!rules.vendors.contains(function.vendor) && vfio::is_accelerators_vf(inventory, rules, function));
}

/// True for a function of NodeDescription::by_name. Of virtual functions, those on a vfio driver are.
bool is_by_name(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules,
                const vfio::PciFunction& function) {
  return !rules.match(function) && may_be_named(inventory, rules, function) &&
         (!function.is_virtual_function() || vfio::on_vfio_driver(function));
}

vfio::Observed observed_by(const NodeSnapshot& snapshot, const std::set<std::string>& stuck) {
  return {.use = &snapshot.use,
          .stuck = &stuck,
          .unreadable_records = &snapshot.journal.unreadable,
          .unsanitized = &snapshot.unsanitized,
          .open_modes = &snapshot.open_modes};
}

/// Completes findings by what hostd and the kernel's counts have seen.
void complete(const NodeSnapshot& snapshot, vfio::GpuFindings& all) {
  for (auto& [gpu, findings] : all)
    std::erase_if(findings, [&](const vfio::Finding& finding) {
      return finding.rule == vfio::RuleId::fatal_errors && finding.answer == vfio::Answer::not_looked &&
             !snapshot.had_fatal_errors.contains(finding.about);
    });
  if (!snapshot.status) return;
  const std::string when = snapshot.status_age
                               ? fmt::format("as ferry hostd saw it {} s ago", snapshot.status_age->count())
                               : "as ferry hostd saw it";
  for (const api::AcceleratorStatus& status : snapshot.status->accelerators) {
    const vfio::PciFunction* function = snapshot.inventory.find(status.address);
    const auto findings = all.find(status.address);
    if (findings == all.end() || function == nullptr || !status.findings) continue;
    if (status.driver == function->driver) ask_hostd(*status.findings, when, findings->second);
  }
}

/// The judgement of each function of NodeDescription::by_name alone, as a command that names it asks.
vfio::GpuFindings judge_by_name(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                                const std::set<std::string>& stuck) {
  vfio::GpuFindings out;
  for (const auto& [address, function] : snapshot.inventory.functions) {
    if (!is_by_name(snapshot.inventory, rules, function)) continue;
    vfio::AcceleratorRules naming = rules;
    naming.named.insert(address);
    const std::vector<vfio::Unit> units = vfio::units_of(snapshot.inventory, {address}, {});
    out.emplace(address, vfio::judge(units.front(), snapshot.inventory, naming, observed_by(snapshot, stuck),
                                     {.all_shed = true, .force = true}));
  }
  return out;
}

std::string why_not_advertised(const NodeSnapshot& snapshot, const vfio::PciAddress& address) {
  if (!snapshot.advertised) return {};
  const auto& all = snapshot.advertised->not_advertised;
  const auto left_out = std::ranges::find(all, address.text(), &api::NotAdvertised::id);
  return left_out == all.end() ? std::string() : left_out->reason;
}

AcceleratorDescription accelerator(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                                   const policy::ModelNames& models, const vfio::PciFunction& function,
                                   std::vector<vfio::Finding> findings) {
  const mdev::VgpuGpu* gpu = snapshot.vgpus.find(function.address);
  AcceleratorDescription description;
  description.function = function;
  description.model = models ? models(function) : std::string();
  if (description.model.empty()) description.model = function.ids();
  description.mode = mode_of(snapshot, function);
  description.members = members_of(snapshot, rules, function);
  description.users = users_of(snapshot, function);
  description.framework = &mdev::no_framework();
  if (gpu != nullptr) {
    description.framework = gpu->framework;
    description.host_driver = gpu->host_driver;
    description.obstacle = gpu->obstacle;
    if (const Error* const problem = gpu->problem()) description.vgpu_problem = problem->message;
    for (const mdev::VgpuDevice& device : gpu->devices) {
      const auto users = snapshot.use.of(device.id.text);
      description.vgpus.push_back(
          {.device = device,
           .users = {users.begin(), users.end()},
           .advertised_as = advertised_as(snapshot, device.id.text, device.iommu_group)});
    }
  }

  // Kata's plugin advertises numbers, so the IOMMU group tells which GPU is meant; a whole group is one GPU
  // then.
  description.advertised_as =
      advertised_as(snapshot, function.address.text(),
                    description.mode == policy::Mode::passthrough ? function.iommu_group : std::nullopt);
  description.not_advertised = why_not_advertised(snapshot, function.address);
  if (snapshot.status) {
    const auto status =
        std::ranges::find(snapshot.status->accelerators, function.address, &api::AcceleratorStatus::address);
    if (status != snapshot.status->accelerators.end()) description.status = *status;
  }
  if (const auto prior = snapshot.journal.members.find(function.address);
      prior != snapshot.journal.members.end())
    description.prior = prior->second;
  if (const auto facts = snapshot.facts.find(function.address); facts != snapshot.facts.end())
    description.facts = facts->second;
  description.findings = std::move(findings);
  add_outlook(snapshot, rules, description);
  description.condition = condition_of(snapshot, description);
  return description;
}

}  // namespace

std::string_view text(Health health) {
  constexpr Words<Health, 3> kWords = {
      {{"good", Health::good}, {"attention", Health::attention}, {"bad", Health::bad}}};
  return word_for(kWords, health);
}

std::vector<vfio::PciAddress> asked_of(const vfio::Inventory& inventory,
                                       const vfio::AcceleratorRules& rules) {
  std::vector<vfio::PciAddress> accelerators;
  for (const auto& [address, function] : inventory.functions) {
    if (may_be_named(inventory, rules, function)) accelerators.push_back(address);
  }
  return vfio::concerned(inventory, accelerators);
}

std::vector<api::AdvertisedDevice> advertised_as(const NodeSnapshot& snapshot, const std::string& device,
                                                 std::optional<std::uint32_t> group) {
  std::vector<api::AdvertisedDevice> out;
  if (!snapshot.advertised) return out;
  // A number is Kata's ID for a group. An address or a UUID belongs to one device, even in the same group.
  const auto is_number = [](const std::string& id) {
    return id.find_first_not_of("0123456789") == std::string::npos;
  };
  for (const api::AdvertisedDevice& advertised : snapshot.advertised->devices) {
    if (advertised.id != device && !(is_number(advertised.id) && group == advertised.iommu_group)) continue;
    out.push_back(advertised);
  }
  return out;
}

vfio::GpuFindings judge_node(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                             const vfio::Asked& asked) {
  const auto stuck = vfio::stuck_functions(snapshot.stuck, snapshot.inventory);
  auto out = vfio::judge_all(snapshot.inventory, rules, observed_by(snapshot, stuck), asked);
  out.merge(judge_by_name(snapshot, rules, stuck));
  complete(snapshot, out);
  return out;
}

const vfio::Finding* NamedDescription::trouble() const {
  if (const vfio::Finding* illness = vfio::illness_of(function, findings)) return illness;
  return vfio::on_vfio_driver(function) ? vfio::obstacle_to(findings, vfio::Blocks::allocate) : nullptr;
}

const AcceleratorDescription* NodeDescription::find(const vfio::PciAddress& address) const {
  const auto found = std::ranges::find(accelerators, address, &AcceleratorDescription::address);
  return found == accelerators.end() ? nullptr : &*found;
}

const NamedDescription* NodeDescription::find_by_name(const vfio::PciAddress& address) const {
  const auto found = std::ranges::find_if(
      by_name, [&](const NamedDescription& description) { return description.function.address == address; });
  return found == by_name.end() ? nullptr : &*found;
}

NodeDescription describe_node(const NodeSnapshot& snapshot, const vfio::AcceleratorRules& rules,
                              const policy::ModelNames& models) {
  NodeDescription description;
  auto findings = judge_node(snapshot, rules, {.all_shed = true, .force = true});
  for (const auto& [address, function] : snapshot.inventory.functions) {
    if (rules.match(function)) {
      description.accelerators.push_back(
          accelerator(snapshot, rules, models, function, std::move(findings[address])));
      continue;
    }
    if (is_by_name(snapshot.inventory, rules, function))
      description.by_name.push_back({.function = function,
                                     .model = models ? models(function) : std::string(),
                                     .advertised_as = advertised_as(snapshot, address.text(), {}),
                                     .not_advertised = why_not_advertised(snapshot, address),
                                     .findings = std::move(findings[address])});
  }
  description.whose = rules.whose;
  if (const auto iommu = vfio::require_iommu(snapshot.inventory); !iommu)
    description.no_iommu = iommu.error();
  description.iommu = snapshot.inventory.has_iommu();
  if (snapshot.status) {
    description.desired = snapshot.status->desired;
    description.phase = snapshot.status->phase;
    description.error = snapshot.status->error;
    description.hostd_runs = snapshot.hostd_runs;
    description.status_age = snapshot.status_age;
  }
  description.unknown = snapshot.use.unknown;
  description.notes = snapshot.vgpus.notes;
  description.notes.insert(description.notes.end(), snapshot.notes.begin(), snapshot.notes.end());
  return description;
}

}  // namespace ferry::host
