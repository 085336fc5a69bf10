// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "cli/output/document.h"
#include "cli/output/table.h"
#include "cli/output/vgpu_report.h"
#include "cli/output/wait_note.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/question.h"
#include "cli/verbs/verbs.h"
#include "common/process/standard_streams.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "host/gpu_numbers.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "mdev/framework.h"
#include "policy/kubernetes_files.h"
#include "policy/policy_comparison.h"
#include "policy/policy_yaml.h"
#include "vfio/quiesce/stopped_services.h"
#include "vgpu-dm/apply/apply.h"
#include "vgpu-dm/plan/comparison.h"
#include "vgpu-dm/plan/export.h"
#include "vgpu-dm/profile/profile_yaml.h"
#include "vgpu-dm/types/type_capacity.h"
#include "vgpu-dm/types/type_names.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

Result<vgpu::Profile> chosen_profile(const ProfileOptions& options) {
  std::optional<std::string> name = options.name;
  if (options.node) {
    if (name) return fail(Errc::usage, "-c and --node both choose a profile", "give one of them");
    auto node = policy::read_node_object(*options.node);
    if (!node) return fail(std::move(node).error());
    auto labelled = policy::profile_name(*node, options.otherwise);
    if (!labelled) return fail(std::move(labelled).error());
    name = *labelled;
    spdlog::info("node {}: profile {}", node->name, *name);
  }
  auto file = read_profiles_for(options);
  if (!file) return fail(std::move(file).error());
  return vgpu::select_profile(*file, name);
}

void log_step(const vgpu::VgpuStep& step, const Result<>& result) {
  if (result) {
    spdlog::info("{}", step.text());
  } else {
    spdlog::error("{}: {}", step.text(), result.error().message);
  }
}

/// The host, with the services that `--release` names.
Result<vgpu::VgpuHost> vgpu_host(const Session& session, const std::vector<std::string>& release) {
  auto list = vfio::release_list(release);
  if (!list) return fail(std::move(list).error().during("--release"));
  auto on = vgpu_host(session, *session.vgpu_probe);
  if (on) on->release = std::move(*list);
  return on;
}

/// Services that an earlier run left stopped are noted in a plan, as in a plan of binding.
ExitStatus preview(const Session& session, vgpu::VgpuPlan plan, const VgpuRequest& of = {}) {
  auto stopped = vfio::notes_on_stopped_services(*session.host);
  if (!stopped) return complain(stopped.error());
  plan.notes.insert(plan.notes.end(), stopped->begin(), stopped->end());
  return print(session, show_vgpus(session, plan, of));
}

json to_json(const mdev::VgpuType& type) {
  return {{"id", type.id},
          {"name", type.name},
          {"short_name", type.short_name},
          {"available_instances", type.available},
          {"max_instances", or_null(type.max_instances)},
          {"framebuffer_mib", or_null(type.framebuffer_mib)}};
}

std::string memory_text(const mdev::VgpuType& type) {
  return type.framebuffer_mib ? fmt::format("{} MiB", *type.framebuffer_mib) : "";
}

std::string max_text(const mdev::VgpuType& type) {
  return type.max_instances ? std::to_string(*type.max_instances) : "";
}

/// Empty: no file can name the type.
std::string type_text(const mdev::VgpuType& type) {
  return vgpu::VgpuTypeName::parse(type.short_name) ? type.short_name : "";
}

/// The types that a profile can name and that Ferry's table has for the board, if the driver lists types only
/// while the GPU has virtual functions and it has none. Their ids and availability are known only then.
std::vector<mdev::VgpuType> types_not_listed_yet(const mdev::VgpuGpu& gpu) {
  std::vector<mdev::VgpuType> out;
  if (!gpu.may_get_virtual_functions()) return out;
  std::ranges::copy_if(gpu.unlisted, std::back_inserter(out),
                       [](const mdev::VgpuType& type) { return !type_text(type).empty(); });
  return out;
}

/// A GPU in a line, with its types in a table below it.
std::string types_text(const mdev::VgpuGpu& gpu, plugin::DeviceNames& names,
                       const std::vector<mdev::VgpuType>& types, const TextOutput& output) {
  const std::string model = names.find(gpu.function.vendor, gpu.function.device).value_or(gpu.function.ids());
  std::string state = gpu.obstacle.empty() ? std::string(gpu.framework->name()) : gpu.obstacle;
  if (types.empty() && gpu.obstacle.empty()) state += ", full: none can be made now";  // it carries vGPUs
  std::string out = wrapped_lines(fmt::format("{}, {}: {}", gpu.label(), model, state), output.columns);
  if (!types.empty()) {
    Table table({"ID", "TYPE", "NAME", "MEMORY", "AVAILABLE", "MAX"});
    for (const mdev::VgpuType& type : types)
      table.add(
          {type.id, type_text(type), type.name, memory_text(type), available_text(type), max_text(type)});
    out += table.text(output.columns);
    const auto has_no_text = [](const mdev::VgpuType& type) { return type_text(type).empty(); };
    if (std::ranges::any_of(types, has_no_text))
      out += wrapped_lines("note: no file can name the types without TYPE", output.columns);
    return out;
  }

  const std::vector<mdev::VgpuType> later = types_not_listed_yet(gpu);
  if (later.empty()) return out;
  out += wrapped_lines(
      "not offered yet: the driver lists types only while the GPU has virtual functions. Ferry's table has "
      "these types of the board:",
      output.columns);
  Table table({"TYPE", "NAME", "MEMORY", "MAX"});
  for (const mdev::VgpuType& type : later)
    table.add({type.short_name, type.name, memory_text(type), max_text(type)});
  return out + table.text(output.columns);
}

/// The vGPUs that the plan removes.
AskedDevices removed_by(const vgpu::VgpuPlan& plan) {
  AskedDevices out;
  for (const vgpu::GpuPlan& gpu : plan.gpus)
    for (const auto* const steps : {&gpu.steps, &gpu.later})
      for (const vgpu::VgpuStep& step : *steps)
        if (step.kind == vgpu::VgpuStep::Kind::remove) out.insert(step.id.text);
  return out;
}

/// Asks a person before all vGPUs go. Returns those that may go; absent: the command asks for no answer.
Result<std::optional<AskedDevices>> answered(const Session& session, const VgpuDeleteOptions& options,
                                             const vgpu::VgpuHost& on, const vgpu::Removal& removal) {
  using Agreed = std::optional<AskedDevices>;
  if (!options.all || options.yes || session.dry_run || !can_ask()) return Agreed();
  if (auto root = require_root(session); !root) return fail(std::move(root).error());
  const auto snapshot = vgpu::look(on);
  if (!snapshot) return fail(snapshot.error());
  AskedDevices devices = removed_by(vgpu::plan_removal(removal, *snapshot));
  if (devices.empty()) return Agreed(std::move(devices));
  if (auto agreed = ask(fmt::format("remove {}?", counted(devices.size(), "vGPU"))); !agreed)
    return fail(std::move(agreed).error());
  return Agreed(std::move(devices));
}

}  // namespace

ExitStatus vgpu_types_verb(const Session& session) {
  auto vgpus = read_vgpus(session);
  if (!vgpus) return complain(vgpus.error());
  std::string out;
  plugin::DeviceNames names(*session.host);
  json gpus = json::array();
  if (vgpus->gpus.empty())
    out += wrapped_lines(
        fmt::format("no vGPU types: this host has no GPU of {}, and no other vendor's GPU on a driver that "
                    "makes virtual functions for VMs",
                    session.rules.whose),
        text_output(session).columns);
  for (const mdev::VgpuGpu& gpu : vgpus->gpus) {
    json types = json::array();
    const std::vector<mdev::VgpuType> offered = vgpu::types_of(gpu);
    out += types_text(gpu, names, offered, text_output(session));
    for (const mdev::VgpuParent& parent : gpu.parents) {
      for (const mdev::VgpuType& type : parent.types) {
        json shown = to_json(type);
        shown["parent"] = parent.address.text();
        types.push_back(std::move(shown));
      }
    }
    json offers = json::array();
    for (const mdev::VgpuType& type : offered) offers.push_back(to_json(type));
    json later = json::array();
    for (const mdev::VgpuType& type : types_not_listed_yet(gpu)) {
      json shown = to_json(type);
      shown.erase("available_instances");
      later.push_back(std::move(shown));
    }
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.address().text()},
                    {"framework", gpu.framework->name()},
                    {"obstacle", gpu.obstacle},
                    {"types", types},
                    {"offers", offers},
                    {"not_offered_yet", later}});
  }
  return print(session, {.document = {{"gpus", gpus}, {"notes", vgpus->notes}},
                         .text = out + note_lines(vgpus->notes, "")});
}

ExitStatus vgpu_apply_verb(const Session& session, const ProfileOptions& options) {
  auto profile = chosen_profile(options);
  if (!profile) return complain(profile.error());
  auto on = vgpu_host(session, options.release);
  if (!on) return complain(on.error());
  on->rules = vgpu::rules_for(*profile, std::move(on->rules));
  on->spares_foreign = !options.foreign;
  if (session.host->exists(host::kGpuNumbersFile)) warn_of_numbers(session, policy::policy_of(*profile));
  if (session.dry_run) {
    auto snapshot = vgpu::look(*on, {&*profile, 1});
    if (!snapshot) return complain(snapshot.error());
    return preview(session, vgpu::plan_profile(*profile, *snapshot));
  }
  const auto change = begin_change(session);
  if (!change) return complain(change.error());
  auto outcome = [&] {
    const WaitNote waits("changing vGPUs");
    return vgpu::apply_profile(*on, *profile, log_step);
  }();
  if (!outcome) return complain(outcome.error());
  return print(session, show_vgpus(session, *outcome));
}

ExitStatus vgpu_assert_verb(const Session& session, const ProfileOptions& options) {
  auto profile = chosen_profile(options);
  if (!profile) return complain(profile.error());
  auto vgpus = read_vgpus(session, vgpu::rules_for(*profile, session.rules));
  if (!vgpus) return complain(vgpus.error());
  // Under hostd the numbers mean the GPUs that it has counted.
  const auto numbered = host::resolve_numbers(*session.host, policy::policy_of(*profile), *vgpus);
  if (!numbered) return complain(numbered.error());
  if (numbered->recorded) {
    profile->items.clear();
    for (const policy::PolicyItem& item : numbered->policy.items) profile->items.push_back(item.gpus);
  }
  const auto idle = policy::items_without_gpu(*profile, *vgpus);
  warn_of_idle(idle);
  std::string out;
  json gpus = json::array();
  bool agrees = true;
  for (const vgpu::GpuComparison& comparison : vgpu::judge(*profile, *vgpus)) {
    agrees = agrees && comparison.agrees;
    out += comparison.agrees ? fmt::format("GPU {} ({}): {}\n", comparison.index, comparison.gpu.text(),
                                           text(comparison.found))
                             : comparison.difference + "\n";
    gpus.push_back({{"index", comparison.index},
                    {"address", comparison.gpu.text()},
                    {"agrees", comparison.agrees},
                    {"desired", to_json(comparison.desired)},
                    {"found", to_json(comparison.found)},
                    {"difference", comparison.difference}});
  }
  return print(session, show_comparison("profile", profile->name, agrees, numbered->gone, gpus, idle, out));
}

ExitStatus vgpu_export_verb(const Session& session, const std::string& name) {
  auto vgpus = read_vgpus(session);
  if (!vgpus) return complain(vgpus.error());
  auto profile = vgpu::export_profile(*vgpus, name);
  if (!profile) return complain(profile.error());
  print_to_stderr("{}", note_lines(vgpu::unsaid_by_v1(*vgpus), ""));

  // NVIDIA's format has its own spelling of keys. It may be JSON, so that either form can be applied.
  json items = json::array();
  for (const vgpu::ProfileItem& item : profile->items) {
    json counts = json::object();
    for (const vgpu::VgpuCount& vgpu : item.vgpus) counts[vgpu.type.text()] = vgpu.count;
    items.push_back(
        {{"devices", item.all_devices ? json("all") : json(item.indices)}, {"vgpu-devices", counts}});
    for (const vgpu::DeviceFilter& filter : item.filters)
      items.back()["device-filter"].push_back(filter.text());
  }
  return print(session, {.document = {{"version", "v1"}, {"vgpu-configs", {{profile->name, items}}}},
                         .text = vgpu::profile_text(*profile)});
}

ExitStatus vgpu_delete_verb(const Session& session, const VgpuDeleteOptions& options) {
  if (options.all == !options.devices.empty())
    return complain({.code = make_error_code(Errc::usage),
                     .message = options.all ? "--all goes without --device" : "no GPU is named",
                     .hint = "name GPUs with --device ADDRESS, or take --all"});
  auto gpus = parse_gpus(options.devices);
  if (!gpus) return complain(gpus.error());
  const vgpu::Removal removal{.gpus = std::move(*gpus), .foreign = options.foreign};

  auto on = vgpu_host(session, *session.vgpu_probe);
  if (!on) return complain(on.error());
  if (!removal.gpus.empty()) {
    auto rules = vgpu_rules(session, session.rules);
    if (!rules) return complain(rules.error());
    on->rules = std::move(*rules);
  }
  const auto agreed = answered(session, options, *on, removal);
  if (!agreed) return complain(agreed.error());

  const auto change = begin_change(session);
  if (!change) return complain(change.error());
  auto snapshot = vgpu::look(*on);
  if (!snapshot) return complain(snapshot.error());
  if (auto there = check_gpus(removal.gpus, snapshot->inventory); !there) return complain(there.error());
  if (session.dry_run) return preview(session, vgpu::plan_removal(removal, *snapshot), {.removal = true});
  if (*agreed) {
    const auto same = check_answer(**agreed, removed_by(vgpu::plan_removal(removal, *snapshot)), "vGPU");
    if (!same) return complain(same.error());
  }
  auto outcome = [&] {
    const WaitNote waits("removing vGPUs");
    return vgpu::remove_vgpus(*on, removal, log_step);
  }();
  if (!outcome) return complain(outcome.error());
  return print(session, show_vgpus(session, *outcome, {.removal = true}));
}

}  // namespace ferry::cli
