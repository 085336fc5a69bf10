// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cli/output/document.h"
#include "cli/output/vgpu_report.h"
#include "cli/verbs/verbs.h"
#include "common/process/standard_streams.h"
#include "vgpu-dm/types/export.h"

namespace ferry::cli {
namespace {

using nlohmann::json;

// NVIDIA's format has its own spelling of keys. It may be JSON, so that either form can be applied.
json document_of(const vgpu::Profile& profile) {
  json items = json::array();
  for (const vgpu::ProfileItem& item : profile.items) {
    json vgpus = json::object();
    for (const vgpu::VgpuCount& vgpu : item.vgpus) vgpus[vgpu.type.text()] = vgpu.count;
    items.push_back(
        {{"devices", item.all_devices ? json("all") : json(item.indices)}, {"vgpu-devices", vgpus}});
    for (const vgpu::DeviceFilter& filter : item.filters)
      items.back()["device-filter"].push_back(filter.text());
  }
  return {{"version", "v1"}, {"vgpu-configs", {{profile.name, items}}}};
}

}  // namespace

ExitStatus vgpu_export_verb(const Session& session, const std::string& name) {
  auto vgpus = read_vgpus(session);
  if (!vgpus) return complain(vgpus.error());
  auto profile = vgpu::export_profile(*vgpus, name);
  if (!profile) return complain(profile.error());
  print_to_stderr("{}", note_lines(vgpu::unsaid_by_v1(*vgpus), ""));
  print(session, document_of(*profile), vgpu::profile_text(*profile));
  return ExitStatus::done;
}

}  // namespace ferry::cli
