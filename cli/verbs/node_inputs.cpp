// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/node_inputs.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "api/files.h"
#include "api/host_status.h"
#include "cli/output/vgpu_report.h"
#include "common/file_status.h"
#include "common/process/standard_streams.h"
#include "host/claims/claim_record.h"
#include "host/desired_state.h"
#include "host/gpu_numbers.h"
#include "host/sanitize/gpu_history.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/locks.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "mdev/vgpu_inventory.h"
#include "policy/kubernetes_files.h"
#include "policy/policy_comparison.h"
#include "policy/policy_yaml.h"
#include "vfio/bind/driver_choice.h"
#include "vfio/confidential/mode_setting.h"
#include "vfio/judgement/fatal_errors.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/quiesce/stopped_services.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

/// The value. An error becomes a note.
template <typename T>
T or_note(Result<T> result, host::NodeSnapshot& snapshot) {
  if (result) return std::move(*result);
  snapshot.notes.push_back(result.error().text());
  return {};
}

std::optional<api::HostStatus> read_status(const HostFs& host, host::NodeSnapshot& snapshot) {
  const auto text = host.read_file(api::kStatusFile);
  if (!text && is_gone(text.error())) return std::nullopt;
  auto status = text ? api::read_host_status(*text) : Result<api::HostStatus>(fail(text.error()));
  if (status) return std::move(*status);
  snapshot.notes.push_back(status.error().text());
  return std::nullopt;
}

std::optional<std::chrono::seconds> age_of(const HostFs& host, const char* path) {
  const auto file = host.open(path, O_RDONLY);
  const auto status = file ? file_status(file->get()) : std::nullopt;
  if (!status) return std::nullopt;
  const auto written = std::chrono::system_clock::from_time_t(status->st_mtime);
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now() - written);
  return std::max(age, std::chrono::seconds{0});
}

void read_overrides_for(const Session& session, const vfio::AcceleratorRules& rules, bool details,
                        const std::vector<vfio::PciAddress>& members, vfio::Inventory& inventory) {
  if (details) return vfio::read_overrides(*session.host, *session.writer, members, inventory);
  auto accelerators = members;
  std::erase_if(accelerators,
                [&](const vfio::PciAddress& address) { return !rules.match(*inventory.find(address)); });
  read_overrides_shortly(session, accelerators, inventory);
}

void add_use(const Session& session, host::NodeSnapshot& snapshot,
             const std::vector<vfio::PciAddress>& members) {
  auto questions = vfio::use_questions(*session.host, snapshot.inventory, members);
  for (const mdev::VgpuGpu& gpu : snapshot.vgpus.gpus) {
    for (const mdev::VgpuDevice& device : gpu.devices) {
      // A virtual function that a VM gets whole may be asked for already.
      auto question = mdev::use_question(device);
      if (std::ranges::find(questions, question.device, &vfio::UseQuestion::device) == questions.end())
        questions.push_back(std::move(question));
    }
  }
  auto use = session.probe->look(questions);
  if (use) {
    snapshot.use = std::move(*use);
  } else {
    snapshot.use.unknown.push_back(use.error().message);  // a captured machine has no processes
  }
}

}  // namespace

Result<std::set<vfio::PciAddress>> parse_gpus(const std::vector<std::string>& addresses) {
  std::set<vfio::PciAddress> out;
  for (const std::string& text : addresses) {
    auto address = vfio::PciAddress::parse(text);
    if (!address) return fail(std::move(address).error());
    out.insert(*address);
  }
  return out;
}

Result<> check_gpus(const std::set<vfio::PciAddress>& gpus, const mdev::VgpuInventory& inventory) {
  for (const vfio::PciAddress& gpu : gpus) {
    if (inventory.find(gpu) == nullptr) {
      return fail(Errc::not_found, fmt::format("there is no GPU {} on this host", gpu.text()),
                  "`ferry vgpu types` lists the GPUs");
    }
  }
  return {};
}

Result<vgpu::ProfileFile> read_profiles_for(const ProfileOptions& options) {
  auto file = policy::read_profile_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) return file;
  for (const std::string& warning : file->warnings) print_to_stderr("warning: {}\n", warning);
  return file;
}

bool warn_of_numbers(const Session& session, const policy::Policy& policy) {
  const auto vgpus = read_vgpus(session, policy::rules_for(policy, session.rules));
  const auto known = vgpus ? host::resolve_numbers(*session.host, policy, *vgpus)
                           : Result<host::NumberedPolicy>(fail(vgpus.error()));
  if (!known) {
    print_to_stderr("warning: {}\n", known.error().message);
    return vgpus.has_value();
  }
  for (const auto& [number, gpu] : known->numbers) {
    const auto now = std::ranges::find(vgpus->gpus, number, &mdev::VgpuGpu::index);
    if (now != vgpus->gpus.end() && now->address() == gpu) continue;
    print_to_stderr("warning: GPU {} was {} for hostd; counted anew it is {}\n", number, gpu.text(),
                    now == vgpus->gpus.end() ? "no GPU" : now->address().text());
  }
  return known->recorded;
}

Result<vgpu::VgpuHost> vgpu_host(const Session& session, vfio::UseProbe& uses) {
  auto node = vgpu::node_identity(*session.host);
  if (!node) return fail(std::move(node).error());
  return vgpu::VgpuHost{.host = *session.host,
                        .writer = *session.writer,
                        .uses = uses,
                        .rules = session.rules,
                        .node = *node,
                        .management = session.management.get(),
                        .release = vfio::default_release(),
                        .service_manager = session.service_manager.get(),
                        .persistence = session.persistence.get(),
                        .on_release = [](const vfio::Step& step) { spdlog::info("{}", step.text()); }};
}

Result<policy::PolicyFile> policies_of(const ProfileOptions& options) {
  auto file = policy::read_policy_file(options.file, options.lenient ? Reading::lenient : Reading::strict);
  if (!file) return file;
  for (const std::string& warning : file->warnings) print_to_stderr("warning: {}\n", warning);
  return file;
}

Result<policy::Policy> chosen_policy(const ProfileOptions& options) {
  auto file = policies_of(options);
  if (!file) return fail(std::move(file).error());
  return policy::select_policy(*file, options.name);
}

std::vector<std::string> idle_items(const policy::Policy& policy, const vfio::Inventory& inventory,
                                    const vfio::AcceleratorRules& rules, const mdev::VgpuInventory& vgpus,
                                    const policy::ModelNames& models) {
  auto idle = policy::items_without_gpu(policy, vgpus, models);
  warn_of_idle(idle);
  const std::string other = counted_by_name(inventory, rules);
  if (!idle.empty() && !other.empty()) print_to_stderr("hint: {}\n", other);
  return idle;
}

policy::ModelNames model_names(const Session& session) {
  return [names = std::make_shared<plugin::DeviceNames>(*session.host)](const vfio::PciFunction& gpu) {
    return names->find(gpu.vendor, gpu.device).value_or("");
  };
}

host::NodeProbes node_probes(const Session& session) {
  return {.for_rebinds = *session.probe, .for_vgpus = *session.vgpu_probe, .open_nodes = *session.open_probe};
}

host::NodeProbes hostd_probes(const Session& session) {
  return {.for_rebinds = *session.hostd_probe,
          .for_vgpus = *session.hostd_vgpu_probe,
          .open_nodes = *session.open_probe};
}

Result<host::NodeContext> node_context(const Session& session, const host::NodeProbes& uses) {
  auto claims = host::gpus_with_claims(*session.host);
  if (!claims) return fail(std::move(claims).error());
  if (const auto& fault = claims->fault)
    print_to_stderr("warning: {}: each GPU for DRA counts as claimed\nhint: {}\n", fault->message,
                    fault->hint);
  auto context = hostd_context(session, uses);
  if (context) context->dra = std::move(claims->gpus);
  return context;
}

Result<host::NodeContext> hostd_context(const Session& session, const host::NodeProbes& uses) {
  auto vgpus = vgpu_host(session, uses.for_vgpus);
  if (!vgpus) return fail(std::move(vgpus).error());
  // If the claims are not known, hostd reports the error, and changes no GPU then.
  const auto claims = host::gpus_with_claims(*session.host);
  if (claims) vgpus->rules.named.insert(claims->gpus.begin(), claims->gpus.end());
  host::NodeContext context{.rebind_context = rebind_context(session, vgpus->rules),
                            .vgpu_host = std::move(*vgpus),
                            .models = model_names(session)};
  if (claims) context.dra = claims->gpus;
  context.rebind_context.probe = &uses.for_rebinds;
  return context;
}

void read_overrides_shortly(const Session& session, const std::vector<vfio::PciAddress>& functions,
                            vfio::Inventory& inventory) {
  constexpr std::chrono::milliseconds kShortly{1000};
  vfio::Inventory read = inventory;
  vfio::read_overrides(*session.host, *session.writer, functions, read, kShortly);
  for (const vfio::PciAddress& address : functions)
    inventory.functions.at(address).driver_override = read.find(address)->driver_override;
}

Result<host::NodeSnapshot> snapshot_node(const Session& session, const vfio::AcceleratorRules& rules,
                                         bool details) {
  host::NodeSnapshot snapshot;
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  snapshot.inventory = std::move(*inventory);
  auto vgpus = mdev::scan_vgpus(*session.host, snapshot.inventory, rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  snapshot.vgpus = std::move(*vgpus);
  vfio::read_unit_facts(*session.host, rules, snapshot.inventory);

  const auto members = host::asked_of(snapshot.inventory, rules);
  for (const vfio::PciAddress& member : members)
    if (vfio::on_vfio_driver(*snapshot.inventory.find(member)) &&
        vfio::had_fatal_errors(*session.host, member))
      snapshot.had_fatal_errors.insert(member);
  read_overrides_for(session, rules, details, members, snapshot.inventory);
  if (details) {
    for (const auto& [address, function] : snapshot.inventory.functions) {
      if (rules.match(function))
        snapshot.facts.emplace(address, vfio::read_device_facts(*session.host, address));
    }
  }
  add_use(session, snapshot, members);
  snapshot.journal = or_note(vfio::read_undo_journal(*session.host), snapshot);
  snapshot.notes.insert(snapshot.notes.end(), snapshot.journal.notes.begin(), snapshot.journal.notes.end());
  if (const auto stopped = vfio::read_service_record(*session.host); !stopped)
    snapshot.notes.push_back("no driver and no vGPU is changed: " + stopped.error().text());
  snapshot.open_modes = vfio::open_modes(*session.host, snapshot.inventory);
  if (!vfio::mode_record_of(*session.host))
    snapshot.notes.emplace_back(
        "the record of a change of the confidential mode cannot be read: start no VM with a GPU of NVIDIA "
        "before you have done what docs/cc.md says");
  else if (vfio::has_interrupted_mode_change(*session.host))
    snapshot.notes.emplace_back(
        "a change of the confidential mode was interrupted: start no VM with its GPUs before `ferry cc set` "
        "has "
        "undone it");
  snapshot.stuck = or_note(stuck_writes(*session.host), snapshot);
  snapshot.advertised = or_note(host::read_advertised_resources(*session.host), snapshot);
  snapshot.status = read_status(*session.host, snapshot);
  auto unsanitized = host::unsanitized_gpus(*session.host);
  if (!unsanitized && snapshot.status) {
    for (const api::AcceleratorStatus& gpu : snapshot.status->accelerators)
      if (gpu.sanitize && gpu.sanitize->state == api::SanitizeState::failed)
        snapshot.unsanitized.emplace(gpu.address, host::why_not_available(gpu.address, *gpu.sanitize));
  }
  if (unsanitized || snapshot.unsanitized.empty())
    snapshot.unsanitized = or_note(std::move(unsanitized), snapshot);
  if (snapshot.status) {
    snapshot.hostd_runs = is_present(*session.host, api::kHostdLiveness).value_or(false);
    snapshot.status_age = age_of(*session.host, api::kStatusFile);
  }
  return snapshot;
}

vfio::AcceleratorRules policy_rules(const Session& session, std::string* fault) {
  const auto desired = host::read_desired(*session.host, api::kDesiredFile, Reading::lenient);
  if (!desired && fault != nullptr) *fault = desired.error().text();
  return desired && *desired ? policy::rules_for((*desired)->policy, session.rules) : session.rules;
}

vfio::AcceleratorRules node_rules(const Session& session, std::string* fault) {
  vfio::AcceleratorRules rules = policy_rules(session, fault);
  if (const auto claims = host::gpus_with_claims(*session.host))
    rules.named.insert(claims->gpus.begin(), claims->gpus.end());
  return rules;
}

Result<ExplainInputs> read_explain_inputs(const Session& session) {
  vfio::AcceleratorRules rules = node_rules(session);
  auto snapshot = snapshot_node(session, rules, true);
  if (!snapshot) return fail(std::move(snapshot).error());
  ExplainInputs inputs{.snapshot = std::move(*snapshot), .description = {}, .places = {}};
  inputs.description = host::describe_node(inputs.snapshot, rules, model_names(session));
  inputs.rules = rules;
  inputs.node = vgpu::node_identity(*session.host).value_or("");

  for (const host::NamedDescription& one : inputs.description.by_name)
    rules.named.insert(one.function.address);
  const auto vgpus = mdev::scan_vgpus(*session.host, inputs.snapshot.inventory, rules);
  if (!vgpus) return fail(vgpus.error());
  inputs.carriers = mdev::carriers_of_vgpus(
      *vgpus, [&](const mdev::VgpuDevice& device) { return vgpu::is_ours(inputs.node, device); });

  for (const auto& [address, function] : inputs.snapshot.inventory.functions)
    inputs.places.emplace(address, vfio::read_place(*session.host, address));
  if (const auto desired = host::read_desired(*session.host, api::kDesiredFile); !desired) {
    inputs.policy_fault = desired.error().text();
    inputs.description.notes.push_back(inputs.policy_fault);
  } else if (*desired) {
    inputs.asked_for = (*desired)->file.policy;
  }
  inputs.plugin_runs = is_present(*session.host, api::kPluginLiveness).value_or(false);
  return inputs;
}

}  // namespace ferry::cli
