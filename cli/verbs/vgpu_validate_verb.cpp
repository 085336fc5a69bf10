// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/vgpu_report.h"
#include "cli/verbs/node_inputs.h"
#include "cli/verbs/verbs.h"
#include "common/process/standard_streams.h"
#include "common/text/text.h"
#include "vgpu-dm/plan/comparison.h"
#include "vgpu-dm/profile/profile.h"
#include "vgpu-dm/profile/profile_yaml.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

/// The report of one profile.
std::string whole(const vgpu::HostCheck& check) {
  const char* result = check.is_for_no_gpu()  ? "is for no GPU of this host"
                       : check.is_not_known() ? "not known whether it works on this host"
                       : check.works()        ? "works on this host"
                                              : "would not work on this host";
  std::string out = fmt::format("profile {}: {}\n", check.profile, result);
  for (const vgpu::GpuPlan& gpu : check.gpus) {
    if (!gpu.matched) {
      out += fmt::format("  {}: no item is for it\n", gpu.label());
      continue;
    }
    out += fmt::format("  {}: {}, expected {}, found {}\n", gpu.label(),
                       gpu.refusal     ? "would not work"
                       : gpu.not_known ? "not known"
                                       : "works",
                       text(gpu.desired), text(gpu.found));
    if (gpu.refusal) out += error_lines(*gpu.refusal, "    ");
    out += note_lines(gpu.notes, "    ");
  }
  return out + note_lines(check.notes, "  ");
}

/// The line of one profile among many.
std::string summary(const vgpu::HostCheck& check) {
  for (const vgpu::GpuPlan& gpu : check.gpus) {
    if (gpu.refusal)
      return fmt::format("profile {}: would not work: {}\n", check.profile, gpu.refusal->message);
  }
  for (const vgpu::GpuPlan& gpu : check.gpus) {
    if (gpu.not_known && !gpu.notes.empty())
      return fmt::format("profile {}: not known: {}\n", check.profile, gpu.notes.front());
  }
  return fmt::format("profile {}: {}\n", check.profile,
                     check.is_for_no_gpu()  ? "is for no GPU of this host"
                     : check.is_not_known() ? "not known"
                                            : "works");
}

/// null: not known.
json works(bool works, bool not_known) {
  return works && not_known ? json(nullptr) : json(works);
}

json to_json(const vgpu::HostCheck& check) {
  json gpus = json::array();
  for (const vgpu::GpuPlan& gpu : check.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"address", gpu.gpu.text()},
                    {"matched", gpu.matched},
                    {"works", works(!gpu.refusal, gpu.not_known)},
                    {"desired", ferry::cli::to_json(gpu.desired)},
                    {"found", ferry::cli::to_json(gpu.found)},
                    {"fault", gpu.refusal ? ferry::cli::to_json(*gpu.refusal) : json(nullptr)},
                    {"notes", gpu.notes}});
  }
  return {{"name", check.profile},
          {"works", works(check.works(), check.is_not_known())},
          {"for_no_gpu", check.is_for_no_gpu()},
          {"gpus", gpus},
          {"notes", check.notes}};
}

}  // namespace

ExitStatus vgpu_validate_verb(const Session& session, const ProfileOptions& options, bool on_host) {
  auto file = read_profiles_for(options);
  if (!file) return complain(file.error());
  if (options.name) {
    if (auto profile = vgpu::select_profile(*file, options.name); !profile) return complain(profile.error());
  }
  for (const vgpu::Profile& profile : file->profiles) {
    if (vgpu::can_be_label(profile.name)) continue;
    file->warnings.push_back(vgpu::label_warning(profile.place, profile.name));
    print_to_stderr("warning: {}\n", file->warnings.back());
  }
  const auto names = file->names();
  VerbOutput shown;
  shown.document = {{"file", options.file.string()}, {"profiles", names}, {"warnings", file->warnings}};
  shown.text = fmt::format("{}: valid, {}\n", options.file.string(), counted(names.size(), "profile"));
  if (!on_host) return print(session, shown);

  auto on = vgpu_host(session, *session.vgpu_probe);
  if (!on) return complain(on.error());
  std::vector<vgpu::Profile> profiles;
  std::ranges::copy_if(file->profiles, std::back_inserter(profiles), [&](const vgpu::Profile& profile) {
    return !options.name || profile.name == *options.name;
  });
  for (const vgpu::Profile& profile : profiles) on->rules = vgpu::rules_for(profile, std::move(on->rules));
  auto snapshot = vgpu::look(*on, profiles);
  if (!snapshot) return complain(snapshot.error());
  json host = json::array();
  for (const vgpu::Profile& profile : profiles) {
    const vgpu::HostCheck check = vgpu::check_on_host(profile, *snapshot);
    shown.text += profiles.size() == 1 ? whole(check) : summary(check);
    host.push_back(to_json(check));
    shown.status = worse(shown.status, check.status());
  }
  shown.document["host"] = host;
  return print(session, shown);
}

}  // namespace ferry::cli
