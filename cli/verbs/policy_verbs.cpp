// SPDX-License-Identifier: Apache-2.0
// `assert`, `export` and `convert`: compare a policy with the host, make one of the host, or convert a v1
// profile to one.
#include <charconv>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/claimable_gpus.h"
#include "api/files.h"
#include "cli/output/document.h"
#include "cli/output/vgpu_report.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/config/config_tree.h"
#include "common/process/standard_streams.h"
#include "host/claims/claim_record.h"
#include "host/gpu_numbers.h"
#include "policy/policy_comparison.h"
#include "policy/policy_export.h"
#include "policy/policy_yaml.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/judgement/unit_members.h"
#include "vfio/registers/register_access.h"
#include "vgpu-dm/profile/profile.h"
#include "vgpu-dm/types/type_table.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

/// The node as `status` sees it, with the vGPU types that the tables know.
Result<host::NodeSnapshot> read_node(const Session& session, const vfio::AcceleratorRules& rules) {
  auto node = snapshot_node(session, rules);
  if (!node) return node;
  auto vgpus = vgpu::scan_known_vgpus(*session.host, node->inventory, rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  node->vgpus = std::move(*vgpus);
  return node;
}

vfio::GpuFindings findings_of(const host::NodeSnapshot& node, const vfio::AcceleratorRules& rules) {
  return host::judge_node(node, rules, {.all_shed = true, .force = true});
}

// JSON and YAML have the same structure as a policy file, so that either can be applied.
json document_of(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::null:
      return nullptr;
    case ConfigNode::Kind::list: {
      json out = json::array();
      for (const ConfigNode& item : node.items) out.push_back(document_of(item));
      return out;
    }
    case ConfigNode::Kind::map: {
      json out = json::object();
      for (const ConfigMember& member : node.members) out[member.key.text] = document_of(member.value);
      return out;
    }
    case ConfigNode::Kind::scalar:
      break;
  }
  if (node.is_string()) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  std::int64_t number = 0;
  std::from_chars(node.text.data(), node.text.data() + node.text.size(), number);  // policy_text() wrote it
  return number;
}

ExitStatus print_policies(const Session& session, const policy::PolicyFile& file) {
  const std::string text = policy::policy_text(file);
  const auto tree = parse_config({.file = "the policy", .text = text});
  if (!tree) return complain(tree.error());
  return print(session, {.document = document_of(*tree), .text = text});
}

/// The GPUs that hostd gives to ResourceClaims. None if their file cannot be read, with a warning.
std::vector<api::ClaimableGpu> claimable_gpus(const Session& session) {
  const auto text = session.host->read_file(api::kClaimableGpusFile);
  if (!text && is_gone(text.error())) return {};
  auto read =
      text ? api::read_claimable_gpus(*text) : Result<std::vector<api::ClaimableGpu>>(fail(text.error()));
  if (read) return std::move(*read);
  print_to_stderr("warning: GPUs for ResourceClaims are not known: {}\n", read.error().message);
  return {};
}

std::string line_of(const policy::ModeComparison& comparison) {
  if (!comparison.agrees()) return comparison.difference + "\n";
  std::string out = fmt::format("{}: {}", comparison.label(), text(comparison.found));
  if (comparison.found == policy::Mode::vgpu) out += ", " + text(comparison.found_vgpus);
  if (comparison.for_dra) return out + "; its claims decide\n";
  return out + (comparison.desired ? "\n" : "; no item is for it\n");
}

json to_json(const policy::ModeComparison& comparison) {
  return {
      {"index", comparison.index},
      {"address", comparison.gpu.text()},
      {"agrees", comparison.agrees()},
      {"desired", comparison.desired ? json(text(*comparison.desired)) : json(nullptr)},
      {"allocation", text(comparison.for_dra ? policy::Allocation::dra : policy::Allocation::device_plugin)},
      {"found", text(comparison.found)},
      {"desired_vgpus", ferry::cli::to_json(comparison.desired_vgpus)},
      {"found_vgpus", ferry::cli::to_json(comparison.found_vgpus)},
      {"difference", comparison.difference}};
}

}  // namespace

ExitStatus assert_verb(const Session& session, const ProfileOptions& options) {
  const auto policy = chosen_policy(options);
  if (!policy) return complain(policy.error());
  const vfio::AcceleratorRules rules = policy::rules_for(*policy, session.rules);
  auto node = read_node(session, rules);
  if (!node) return complain(node.error());
  const policy::ModelNames models = model_names(session);
  // Under hostd the numbers mean the GPUs that it has counted.
  const auto numbered = host::resolve_numbers(*session.host, *policy, node->vgpus);
  if (!numbered) return complain(numbered.error());
  policy::ResolvedPolicy asked = policy::resolve(numbered->policy, node->vgpus, models);
  if (const auto allowed = policy::check_allocations(asked, node->inventory, node->vgpus); !allowed)
    return complain(allowed.error());
  if (const auto claims = host::gpus_with_claims(*session.host))  // as `apply` leaves them out
    for (const vfio::PciAddress& gpu : claims->gpus) asked.modes.erase(gpu);
  if (const auto possible = host::check_possible(asked, node->inventory); !possible)
    return complain(possible.error());
  for (const auto& [gpu, mode] : asked.modes)
    if (mode == policy::Mode::passthrough)
      vfio::wake_sleepers(*session.host, vfio::concerned(node->inventory, {gpu}), node->inventory);
  const auto idle = idle_items(numbered->policy, node->inventory, rules, node->vgpus, models);
  for (const std::string& note : numbered->uncounted) print_to_stderr("warning: {}\n", note);
  std::string out;
  json gpus = json::array();
  bool agrees = true;
  for (const policy::ModeComparison& comparison :
       policy::judge_policy(numbered->policy, node->vgpus, findings_of(*node, rules), models)) {
    agrees = agrees && comparison.agrees();
    out += line_of(comparison);
    gpus.push_back(to_json(comparison));
  }
  return print(session, show_comparison("policy", policy->name, agrees, numbered->gone, gpus, idle, out));
}

ExitStatus export_verb(const Session& session, const std::string& name) {
  const vfio::AcceleratorRules of_policy = policy_rules(session);
  const auto rules = vgpu_rules(session, of_policy);
  if (!rules) return complain(rules.error());
  auto node = read_node(session, *rules);
  if (!node) return complain(node.error());
  policy::ManagedGpus managed;
  std::set<vfio::PciAddress> named;
  for (const mdev::VgpuGpu& gpu : node->vgpus.gpus) {
    if (of_policy.match(gpu.function) && !vfio::is_switch(gpu.function)) named.insert(gpu.address());
    if (policy::asks_library_to_export(gpu))
      managed.emplace(gpu.address(), session.management->read(gpu.address()));
  }
  auto exported = policy::export_policy(node->vgpus, findings_of(*node, *rules), name, managed,
                                        claimable_gpus(session), named);
  if (!exported) return complain(exported.error());
  print_to_stderr("{}", note_lines(exported->notes, ""));
  policy::PolicyFile file;
  file.policies.push_back(std::move(exported->policy));
  return print_policies(session, file);
}

ExitStatus convert_verb(const Session& session, const ProfileOptions& options) {
  auto file = policies_of(options);
  if (!file) return complain(file.error());
  if (options.name) {
    auto policy = policy::select_policy(*file, options.name);
    if (!policy) return complain(policy.error());
    file->policies = {std::move(*policy)};
  }
  for (const policy::Policy& policy : file->policies) {
    if (!vgpu::can_be_label(policy.name))
      print_to_stderr("warning: {}\n", vgpu::label_warning(policy.place, policy.name));
  }
  return print_policies(session, *file);
}

}  // namespace ferry::cli
