// SPDX-License-Identifier: Apache-2.0
#include "host/claims/claim_devices.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "common/text/text.h"
#include "host/claims/claim_functions.h"
#include "host/claims/claimable_gpus.h"
#include "mdev/framework.h"
#include "mdev/vgpu_inventory.h"
#include "policy/policy.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/bind/undo_journal.h"
#include "vfio/judgement/judge.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/vm_nodes.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/addition.h"
#include "vgpu-dm/plan/stable_uuid.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::host {
namespace {

using vfio::PciAddress;

tl::unexpected<Error> refuse(std::string message, std::string hint = {}) {
  return fail(Errc::refused, std::move(message), std::move(hint));
}

std::vector<PciAddress> addresses_of(const ClaimedDevice& device) {
  std::vector<PciAddress> out;
  out.reserve(device.gpus.size());
  for (const ClaimedGpu& gpu : device.gpus) out.push_back(gpu.address);
  return out;
}

/// True for a virtual function that a VM gets whole: its type is its IDs.
bool is_whole_function(const ClaimedDevice& device) {
  return device.request.type.find(':') != std::string::npos;
}

// Users.

/// Errc::refused if a user of the device may have been missed.
Result<> require_seen(const vfio::UseReport& use, const std::string& device) {
  const auto blind = use.blind_to(device);
  if (blind.empty()) return {};
  return refuse(fmt::format("{}: Ferry cannot find out whether it is in use: {}", device, blind),
                use.blind_hint.empty()
                    ? "hostd needs the host's PID namespace, and the capabilities that SECURITY.md names"
                    : use.blind_hint);
}

/// Errc::refused if one of the GPUs, or a function beside it, is in use. A bind leaves a device that is on
/// vfio already where it is, even with a user.
Result<> require_unused(const NodeContext& context, const vfio::Inventory& inventory,
                        const std::vector<PciAddress>& gpus) {
  const auto functions = vfio::concerned(inventory, gpus);
  const auto use =
      context.rebind_context.probe->look(vfio::use_questions(context.fs(), inventory, functions));
  if (!use) return fail(use.error());
  for (const PciAddress& function : functions) {
    const std::string name = function.text();
    if (auto seen = require_seen(*use, name); !seen) return seen;
    for (const vfio::DeviceUser& user : use->of(name)) {
      if (!user.only_a_screen())
        return refuse(fmt::format("{} is in use: {}", name, user.text()), std::string(user.remedy()));
    }
  }
  return {};
}

// Plans.

tl::unexpected<Error> unhealthy(const api::ClaimableGpu& gpu) {
  return refuse(fmt::format("GPU {} is unhealthy: {}", gpu.address.text(), gpu.reason),
                fmt::format("`ferry explain {}` says more", gpu.address.text()));
}

/// Errc::refused: the policy does not give the GPU to such a device.
Result<> check_policy(const PciAddress& gpu, const api::RequestedDevice& request, const ClaimPolicy& policy) {
  const std::string& type = request.type;
  const auto found = std::ranges::find(policy.gpus, gpu, &api::ClaimableGpu::address);
  if (found == policy.gpus.end() || !found->for_dra) {
    return refuse(
        fmt::format("GPU {} is not for claims: its allocation by the node's policy is not dra", gpu.text()),
        "set `allocation: dra` for it in the policy; the value changes once the GPU is unused");
  }
  if (type.empty()) {
    if (found->whole) return {};
    if (found->health == api::GpuHealth::unhealthy) return unhealthy(*found);
    return refuse(
        fmt::format("no claim can have GPU {} as a whole: the node's policy does not allow it, it has GPU "
                    "instances (MIG), or its IOMMU group cannot be bound to a vfio driver",
                    gpu.text()),
        "see the item's key `allow` in the policy, and `ferry doctor --for passthrough`");
  }

  const auto known = std::ranges::find(found->types, type, &api::VgpuType::id);
  if (known == found->types.end() || !known->allowed)
    return refuse(fmt::format("the node's policy allows no vGPU of type {} on GPU {}", type, gpu.text()),
                  "let the policy allow the type");

  // The scheduler may have chosen the device while the GPU had another mode, or other placements.
  constexpr const char* kHint = "delete the pod, so that its claim is allocated again";
  const auto& placement = request.placement;
  if (found->mixed_sizes != placement.has_value()) {
    return refuse(fmt::format("GPU {} has vGPUs of {} by now, and the claim was allocated for {}", gpu.text(),
                              found->mixed_sizes ? "mixed sizes" : "one size",
                              found->mixed_sizes ? "one size" : "mixed sizes"),
                  kHint);
  }
  if (placement && std::ranges::find(known->placements, *placement) == known->placements.end())
    return refuse(
        fmt::format("GPU {}: type {} has no placement {}", gpu.text(), known->short_name, *placement), kHint);
  return {};
}

Result<> check_gpu(const PciAddress& gpu, const api::RequestedDevice& request, const std::string& uid,
                   const ClaimPolicy& policy, const ClaimRecord& record) {
  if (auto allowed = check_policy(gpu, request, policy); !allowed) return allowed;
  if (const Claim* const other = record.in_the_way(gpu, uid, request.type.empty())) {
    return refuse(fmt::format("GPU {} is in use by {} (UID {})", gpu.text(), other->label(), other->uid),
                  "delete the pod that has that claim");
  }
  return {};
}

/// Errc::refused: the GPU has vGPUs, and does not go to a VM whole.
Result<> check_carries_none(const ScannedNode& node, const PciAddress& gpu) {
  const auto carriers = mdev::carriers_of_vgpus(node.vgpus);
  const auto carrier = carriers.find(gpu);
  if (carrier == carriers.end()) return {};
  return refuse(fmt::format("GPU {} {}", gpu.text(), carrier->second));
}

/// Errc::refused: the GPU has GPU instances, which end with its driver's binding. A library that does not
/// answer is no reason to refuse.
Result<> check_has_no_instances(const NodeContext& context, const vfio::PciFunction& gpu) {
  if (!vgpu::BoardTypes(gpu).has_mig_backed() || vfio::on_vfio_driver(gpu) ||
      context.vgpu_host.management == nullptr)
    return {};
  const auto said = context.vgpu_host.management->read(gpu.address);
  if (!said || said->instances.empty()) return {};
  return refuse(fmt::format("GPU {} goes to no VM whole: it has {} (MIG)", gpu.address.text(),
                            counted(said->instances.size(), "GPU instance")),
                "remove them with `nvidia-smi mig -dci` and `-dgi`, or ask for a vGPU that fills one");
}

Result<ClaimedDevice> plan_whole(const api::RequestedDevice& request, const std::string& uid,
                                 const NodeContext& context, const ScannedNode& node,
                                 const ClaimPolicy& policy, const ClaimRecord& record) {
  ClaimedDevice out{.request = request, .was_on_vfio = true};
  out.result.function = request.gpu;
  for (const PciAddress& address : node.inventory.group_of(*node.inventory.find(request.gpu))) {
    const vfio::PciFunction& function = *node.inventory.find(address);
    if (!context.rebind_context.rules.match(function)) continue;
    if (auto free = check_gpu(address, request, uid, policy, record); !free)
      return fail(std::move(free).error());
    if (auto empty = check_carries_none(node, address); !empty) return fail(std::move(empty).error());
    if (auto none = check_has_no_instances(context, function); !none) return fail(std::move(none).error());
    const bool on_vfio = vfio::on_vfio_driver(function);
    out.was_on_vfio = out.was_on_vfio && on_vfio;
    // Functions that an earlier claim has cost are enabled after this one, if that is possible by then.
    const MissingFunctions* const missing = record.missing_of(address);
    const std::uint32_t functions =
        std::max(function.sriov_numvfs, missing != nullptr ? missing->functions : 0U);
    out.gpus.push_back({.address = address, .functions = on_vfio ? std::uint32_t{0} : functions});
  }
  return out;
}

/// The virtual function for a vGPU; `taken` gets it, and those that a program uses.
Result<PciAddress> free_function(const NodeContext& context, const ScannedNode& node,
                                 const mdev::VgpuGpu& gpu, const std::string& type,
                                 std::set<PciAddress>& taken) {
  std::optional<Error> used;
  while (true) {
    auto function = vgpu::free_parent(gpu, type, taken);
    if (!function && used) return fail(std::move(*used));
    if (!function) return function;
    taken.insert(*function);
    if (!gpu.framework->binds_functions()) return function;
    auto unused = require_unused(context, node.inventory, {*function});
    if (unused) return function;
    used = std::move(unused).error();
  }
}

Result<ClaimedDevice> plan_vgpu(const api::RequestedDevice& request, const std::string& uid,
                                std::size_t index, const NodeContext& context, const ScannedNode& node,
                                const ClaimPolicy& policy, const ClaimRecord& record,
                                std::set<PciAddress>& taken) {
  if (auto free = check_gpu(request.gpu, request, uid, policy, record); !free)
    return fail(std::move(free).error());
  const mdev::VgpuGpu* const gpu = node.vgpus.find(request.gpu);
  if (gpu == nullptr) return no_such_gpu(request.gpu);
  ClaimedDevice out{.request = request,
                    .gpus = {{.address = request.gpu, .functions = gpu->function.sriov_numvfs}}};
  if (gpu->framework->has_uuids()) {
    out.result.mdev_uuid = vgpu::claim_uuid(uid, index).text;
    return out;
  }
  auto function = free_function(context, node, *gpu, request.type, taken);
  if (!function) return fail(std::move(function).error());
  out.result.function = *function;
  return out;
}

// Whole devices.

/// Errc::refused: a fact about the host keeps the GPUs from a VM. Asks the devices, and wakes them for it.
/// The facts that only a round of hostd knows come from the policy's file.
Result<> require_fit(const NodeContext& context, const std::vector<PciAddress>& gpus,
                     const ClaimPolicy& policy) {
  const vfio::AcceleratorRules& rules = context.rebind_context.rules;
  auto inventory = vfio::scan(context.fs());
  if (!inventory) return fail(std::move(inventory).error());
  for (const PciAddress& gpu : gpus)
    if (inventory->find(gpu) == nullptr) return no_such_gpu(gpu);
  vfio::read_unit_facts(context.fs(), rules, *inventory);
  vfio::wake_sleepers(context.fs(), vfio::concerned(*inventory, gpus), *inventory);
  for (const vfio::Unit& unit : vfio::units_of(*inventory, gpus, {})) {
    for (const vfio::Finding& finding :
         vfio::judge(unit, *inventory, rules, {}, {.all_shed = true, .force = true}))
      if (finding.blocks(vfio::Blocks::prepare) && !vfio::rule(finding.rule).passes)
        return refuse(finding.text, finding.advice);
  }
  for (const api::ClaimableGpu& gpu : policy.gpus)
    if (gpu.health == api::GpuHealth::unhealthy && std::ranges::find(gpus, gpu.address) != gpus.end())
      return unhealthy(gpu);
  return {};
}

void log_rest(const vfio::RebindOutcome& outcome) {
  for (const std::string& note : outcome.notes) spdlog::info("{}", note);
  for (const Error& error : outcome.errors) spdlog::warn("{}", error.text());
}

/// The result for these GPUs. Errc::not_found: one of them is gone.
Result<> judge(const vfio::RebindOutcome& outcome, const std::vector<PciAddress>& gpus) {
  for (const PciAddress& gpu : gpus) {
    const vfio::RebindResult* const result = outcome.find(gpu);
    if (result == nullptr) return no_such_gpu(gpu);
    if (auto done = result->check(); !done) return done;
  }
  return {};
}

/// Takes virtual functions away first, and rolls back both stages as `ferry apply` does.
Result<> bind_without_functions(const NodeContext& context, const std::vector<PciAddress>& gpus,
                                const std::string& label, const std::set<std::string>& release) {
  policy::Policy passthrough;
  passthrough.name = label;
  passthrough.place = label;
  passthrough.release = release;
  passthrough.foreign = policy::Foreign::keep;
  for (const PciAddress& gpu : gpus) {
    policy::PolicyItem& item = passthrough.items.emplace_back();
    item.mode = policy::Mode::passthrough;
    item.gpus.only = gpu;
    item.gpus.place = label;
    item.selection.addresses = {gpu};
  }

  const auto outcome = apply_policy(context, passthrough);
  if (!outcome) return fail(outcome.error());
  log_rest(outcome->unbound);
  log_rest(outcome->bound);
  if (const auto& error = outcome->error) return fail(Error(*error));
  for (const PciAddress& gpu : gpus)
    if (auto done = check_outcome(outcome->vgpus, gpu); !done) return done;
  return judge(outcome->bound, gpus);
}

Result<> bind_whole(const NodeContext& context, const ScannedNode& node, const Claim& claim,
                    const ClaimedDevice& device, const ClaimPolicy& policy) {
  const auto gpus = addresses_of(device);
  bool has_functions = false;
  bool on_vfio = false;
  for (const PciAddress& gpu : gpus) {
    const vfio::PciFunction* const function = node.inventory.find(gpu);
    if (function == nullptr) return no_such_gpu(gpu);
    if (auto empty = check_carries_none(node, gpu); !empty) return empty;
    for (const vfio::Finding& finding : vfio::findings_about(node.findings, gpu))
      if (finding.rule == vfio::RuleId::interrupted_mode_change) return refuse(finding.text, finding.advice);
    if (vfio::on_vfio_driver(*function))
      on_vfio = true;
    else if (function->sriov_numvfs > 0)
      has_functions = true;
  }
  if (on_vfio) {
    if (auto unused = require_unused(context, node.inventory, gpus); !unused) return unused;
    if (auto fit = require_fit(context, gpus, policy); !fit) return fit;
  }
  if (has_functions) return bind_without_functions(context, gpus, claim.label(), policy.release);
  vfio::RebindRequest request;
  request.accelerators = gpus;
  request.by_name.insert(gpus.begin(), gpus.end());
  request.release = policy.release;
  const auto rebound =
      vfio::apply_rebinds(context.rebind_context, request, vfio::Direction::to_vfio, &node.inventory);
  if (!rebound) return fail(rebound.error());
  log_rest(*rebound);
  return judge(*rebound, gpus);
}

Result<> unbind(const NodeContext& context, const ClaimedDevice& device, ClaimRecord& record) {
  const auto inventory = vfio::scan(context.fs());
  if (!inventory) return fail(inventory.error());
  // The engine of `ferry vfio bind` has bound these.
  std::vector<PciAddress> functions = addresses_of(device);
  if (device.result.function && is_whole_function(device)) functions = {*device.result.function};
  vfio::RebindRequest request;
  request.recorded_only = true;
  for (const PciAddress& function : functions)
    if (inventory->find(function) != nullptr) request.accelerators.push_back(function);
  if (request.accelerators.empty()) return {};
  if (device.was_on_vfio) return require_unused(context, *inventory, request.accelerators);
  const auto rebound =
      vfio::apply_rebinds(context.rebind_context, request, vfio::Direction::back, &*inventory);
  if (!rebound) return fail(rebound.error());
  log_rest(*rebound);
  if (auto done = judge(*rebound, request.accelerators); !done) return done;
  if (is_whole_function(device)) return {};
  for (const ClaimedGpu& gpu : device.gpus)
    if (gpu.functions > 0 && inventory->find(gpu.address) != nullptr)
      note_missing(context, gpu, restore_functions(context, gpu), record);
  return {};
}

// vGPUs.

Result<vfio::UseReport> use_of_vgpu(const NodeContext& context, const mdev::VgpuDevice& vgpu) {
  const vfio::UseQuestion question = mdev::use_question(vgpu);
  return context.vgpu_host.uses.look({&question, 1});
}

/// Errc::refused if the report names a program that has the vGPU open.
Result<> require_unused(const Result<vfio::UseReport>& use, const mdev::VgpuDevice& vgpu) {
  if (!use) return fail(use.error());
  const auto users = use->of(vgpu.id.text);
  if (users.empty()) return {};
  return refuse(
      fmt::format("vGPU {} ({}) is in use: {}", vgpu.id.text, vgpu.short_name, users.front().text()),
      std::string(users.front().remedy()));
}

std::optional<DeviceFailure> clean(Error error) {
  return DeviceFailure{.error = std::move(error), .is_clean = true};
}

/// Errc::refused: another program has bound the virtual function, which goes to a VM whole.
Result<> check_bound_by_ferry(const NodeContext& context, const mdev::VgpuGpu& gpu,
                              const mdev::VgpuDevice& function) {
  if (!gpu.framework->binds_functions()) return {};
  const auto journal = vfio::read_undo_journal(context.fs());
  if (!journal) return fail(journal.error());
  if (journal->has_bound(function.parent, function.type_id)) return {};
  return refuse(fmt::format("another program has bound virtual function {}", function.parent.text()),
                "the next try takes another virtual function");
}

std::optional<DeviceFailure> make_vgpu(const NodeContext& context, const ScannedNode& node,
                                       const Claim& claim, const ClaimedDevice& device,
                                       const ClaimPolicy& policy) {
  const mdev::VgpuGpu* const gpu = node.vgpus.find(device.request.gpu);
  if (gpu == nullptr) return clean(no_such_gpu(device.request.gpu).value());
  const mdev::VgpuId id{device.id()};
  const mdev::VgpuDevice* const there = node.vgpus.find(id);
  std::optional<PciAddress> parent = device.result.function;
  if (there != nullptr) {
    if (auto ours = check_bound_by_ferry(context, *gpu, *there); !ours) return clean(std::move(ours).error());
    // The vGPU may be this claim's own one, so that it is undone, if nothing has it open.
    if (auto unused = require_unused(use_of_vgpu(context, *there), *there); !unused)
      return DeviceFailure{.error = std::move(unused).error()};
    parent = there->parent;
  } else if (!parent) {
    auto chosen = vgpu::free_parent(*gpu, device.request.type);
    if (!chosen) return clean(std::move(chosen).error());
    parent = *chosen;
  }
  const vgpu::Addition addition{.gpu = device.request.gpu,
                                .parent = *parent,
                                .type_id = device.request.type,
                                .id = id,
                                .placement = device.request.placement,
                                .sizes = device.request.placement ? vgpu::Sizes::mixed : vgpu::Sizes::equal,
                                .why = claim.label() + " asks for it"};
  vgpu::VgpuHost vgpus = context.vgpu_host;
  vgpus.release = policy.release;
  const auto made = vgpu::add_vgpu(vgpus, addition, {}, &node.inventory);
  if (!made) return clean(made.error());
  const auto of_gpu = std::ranges::find(made->gpus, device.request.gpu, &vgpu::GpuOutcome::gpu);
  if (of_gpu == made->gpus.end())
    return DeviceFailure{.error = no_such_gpu(device.request.gpu).value(), .is_clean = there == nullptr};
  if (auto done = check_outcome(*of_gpu); !done)
    return DeviceFailure{.error = std::move(done).error(),
                         .is_clean = there == nullptr && of_gpu->undo_errors.empty()};
  // A UUID shows whose vGPU it is, and an address does not.
  const bool is_anothers =
      there == nullptr && device.result.function && of_gpu->kind == vgpu::GpuOutcome::Kind::already_so;
  if (!is_anothers) return std::nullopt;
  return clean({.code = make_error_code(Errc::refused),
                .message = fmt::format("virtual function {} has a vGPU of another program by now", id.text),
                .hint = "the next try takes another virtual function"});
}

}  // namespace

Result<Claim> plan_claim(const api::ClaimRequest& request, const NodeContext& context,
                         const ScannedNode& node, const ClaimPolicy& policy, const ClaimRecord& record) {
  Claim claim{.uid = request.claim, .space = request.space, .name = request.name};
  std::set<PciAddress> taken;
  for (const Claim& other : record.claims)
    for (const ClaimedDevice& device : other.devices)
      if (const auto& function = device.result.function) taken.insert(*function);

  for (const api::DeviceOfPod& of_pod : request.devices) {
    const api::RequestedDevice& asked = of_pod.device;
    const vfio::PciFunction* const gpu = node.inventory.find(asked.gpu);
    if (gpu == nullptr || !context.rebind_context.rules.match(*gpu)) return no_such_gpu(asked.gpu);
    auto device = asked.type.empty() ? plan_whole(asked, claim.uid, context, node, policy, record)
                                     : plan_vgpu(asked, claim.uid, claim.devices.size(), context, node,
                                                 policy, record, taken);
    if (!device) return fail(std::move(device).error());
    for (const ClaimedDevice& other : claim.devices) {
      const bool share_a_gpu = std::ranges::any_of(device->gpus, [&](const ClaimedGpu& one) {
        return std::ranges::find(other.gpus, one.address, &ClaimedGpu::address) != other.gpus.end();
      });
      if (share_a_gpu && (device->is_whole() || other.is_whole()))
        return refuse(fmt::format("GPU {} is asked for twice, and once it is to be whole", asked.gpu.text()));
    }
    device->resources = of_pod.resources;
    claim.devices.push_back(std::move(*device));
  }
  return claim;
}

Result<> check_still_for_dra(const Claim& claim, const ClaimPolicy& policy) {
  for (const ClaimedDevice& device : claim.devices)
    for (const ClaimedGpu& gpu : device.gpus)
      if (auto allowed = check_policy(gpu.address, device.request, policy); !allowed) return allowed;
  return {};
}

std::optional<DeviceFailure> make_device_ready(const NodeContext& context, const ScannedNode& node,
                                               const Claim& claim, std::size_t index,
                                               const ClaimPolicy& policy) {
  const ClaimedDevice& device = claim.devices.at(index);
  if (!device.is_whole()) return make_vgpu(context, node, claim, device, policy);
  // The undo journal has exactly the writes that are left to be undone. A GPU that was on vfio before has
  // none.
  auto bound = bind_whole(context, node, claim, device, policy);
  // A bind shows facts that no one could see before: a framebuffer that stays, a node that does not come.
  if (bound) bound = require_fit(context, addresses_of(device), ClaimPolicy());
  if (!bound) return DeviceFailure{.error = std::move(bound).error(), .is_clean = device.was_on_vfio};
  return std::nullopt;
}

Result<> undo_device(const NodeContext& context, const Claim& claim, std::size_t index, ClaimRecord& record) {
  const ClaimedDevice& device = claim.devices.at(index);
  if (device.is_whole() || is_whole_function(device)) return unbind(context, device, record);

  const PciAddress& gpu = device.request.gpu;
  if (!context.fs().exists(vfio::sysfs_path(gpu))) return {};
  const vgpu::Removal removal{
      .gpus = {gpu}, .foreign = true, .only = {device.id()}, .only_type = device.request.type};
  const auto removed = vgpu::remove_vgpus(context.vgpu_host, removal);
  if (!removed) return fail(removed.error());
  if (auto done = check_outcome(*removed, gpu); !done) return done;
  for (const ClaimedGpu& one : device.gpus) note_missing(context, one, {}, record);
  return {};
}

Result<> check_unused(const NodeContext& context, const ScannedNode& node, const Claim& claim) {
  for (const ClaimedDevice& device : claim.devices) {
    if (device.is_whole()) {
      std::vector<PciAddress> gpus = addresses_of(device);
      std::erase_if(gpus, [&](const PciAddress& gpu) { return node.inventory.find(gpu) == nullptr; });
      if (gpus.empty()) continue;
      if (auto unused = require_unused(context, node.inventory, gpus); !unused) return unused;
      continue;
    }
    const mdev::VgpuDevice* const vgpu = node.vgpus.find({device.id()});
    if (vgpu == nullptr || vgpu->type_id != device.request.type) continue;  // it is not the claim's any more
    const auto use = use_of_vgpu(context, *vgpu);
    if (auto unused = require_unused(use, *vgpu); !unused) return unused;
    if (auto seen = require_seen(*use, vgpu->id.text); !seen) return seen;
  }
  return {};
}

}  // namespace ferry::host
