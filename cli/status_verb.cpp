// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/accelerator_filter.h"
#include "cli/document.h"
#include "cli/facts_document.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/driver_override.h"

namespace ferry {
namespace {

using nlohmann::json;

struct Seen {
  Inventory inventory;
  VgpuInventory vgpus;
  UseReport use;
};

Result<Seen> see(const Session& session) {
  Seen seen;
  auto inventory = scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  seen.inventory = std::move(*inventory);
  auto vgpus = scan_vgpus(*session.host, seen.inventory, session.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  seen.vgpus = std::move(*vgpus);

  std::vector<PciAddress> asked;
  for (const auto& [address, function] : seen.inventory.functions) {
    if (session.rules.match(function)) asked.push_back(address);
  }
  const auto members = concerned(seen.inventory, asked);
  // The table does not show them.
  if (session.output != OutputFormat::table)
    read_overrides(*session.host, *session.writer, members, seen.inventory);
  auto questions = use_questions(*session.host, seen.inventory, members);
  for (const VgpuGpu& gpu : seen.vgpus.gpus) {
    for (const VgpuDevice& device : gpu.devices) questions.push_back(use_question(device));
  }
  auto use = session.probe->look(questions);
  if (use) {
    seen.use = std::move(*use);
  } else {
    seen.use.unknown.push_back(use.error().message);  // a captured machine has no processes
  }
  return seen;
}

std::string driver_text(const PciFunction& function) {
  return function.driver.value_or("none");
}

// "2 x GRID T4-2Q", or what it could carry.
std::string vgpu_text(const VgpuGpu* gpu) {
  if (gpu == nullptr) return {};
  std::map<std::string, int> counts;
  for (const VgpuDevice& device : gpu->devices) ++counts[device.type_name];
  std::vector<std::string> parts;
  for (const auto& [type, count] : counts) parts.push_back(fmt::format("{} x {}", count, type));
  if (parts.empty() && gpu->framework != VgpuFramework::none) return "none made";
  return join(parts, "\n");
}

std::vector<Holder> holders_of(const Seen& seen, const PciFunction& function,
                               const std::vector<PciAddress>& group) {
  std::vector<Holder> out;
  const auto add = [&](const std::string& device) {
    for (const Holder& holder : seen.use.of(device)) {
      if (std::find(out.begin(), out.end(), holder) == out.end()) out.push_back(holder);
    }
  };
  for (const PciAddress& member : group) add(member.text());
  if (const VgpuGpu* gpu = seen.vgpus.find(function.address)) {
    for (const VgpuDevice& device : gpu->devices) add(device.id.text);
  }
  return out;
}

// Whether the group could go to a VM now, by the kernel's rule, and whether `vfio bind` would move it if
// nobody used it: that one also wants the whole card, and takes no other accelerator along unasked.
void add_outlook(const Seen& seen, const AcceleratorRules& rules, const VfioDriverTable& drivers,
                 const PciFunction& function, json& entry) {
  const auto blockers = function.iommu_group ? viability_blockers(seen.inventory, *function.iommu_group)
                                             : std::vector<PciAddress>{};
  entry["group_viable"] = seen.inventory.has_iommu() && function.iommu_group && blockers.empty();
  entry["group_blockers"] = to_json(blockers);
  if (const auto iommu = require_iommu(seen.inventory); !iommu) {
    entry["movable"] = false;
    entry["movable_reasons"] = json::array({iommu.error().message});
    return;
  }
  MoveRequest request;
  request.accelerators = {function.address};
  request.untouchable = carriers_of_vgpus(seen.vgpus);
  const MovePlan plan = plan_bind(seen.inventory, rules, request, UseReport{}, drivers, {}, {});
  entry["movable"] = plan.refusals.empty();
  entry["movable_reasons"] = plan.refusals.empty() ? json::array() : json(plan.refusals.front().reasons);
}

}  // namespace

ExitStatus status_verb(const Session& session) {
  auto seen = see(session);
  if (!seen) return complain(seen.error());
  DeviceNames names(*session.host);
  const auto drivers = VfioDriverTable::read(*session.host);

  Table table({"ACCELERATOR", "MODEL", "GROUP", "DRIVER", "ALSO IN THE GROUP", "VGPUS", "USED BY"});
  json list = json::array();
  for (const auto& known : seen->inventory.functions) {
    const PciAddress& address = known.first;
    const PciFunction& function = known.second;
    if (!session.rules.match(function)) continue;
    const auto group = seen->inventory.group_of(function);
    const VgpuGpu* gpu = seen->vgpus.find(address);
    const std::string model = model_of(function, names);

    json entry = to_json(function);
    entry["model"] = model;
    entry["members"] = json::array();
    std::vector<std::string> others;
    for (const PciAddress& member : group) {
      if (member == address) continue;
      const PciFunction& other = *seen->inventory.find(member);
      entry["members"].push_back(to_json(other));
      others.push_back(
          fmt::format("{} {}", member.text(), other.is_bridge() ? "(bridge)" : driver_text(other)));
    }
    add_outlook(*seen, session.rules, drivers, function, entry);
    // The table does not show them, and reading them wakes a GPU that sleeps.
    if (session.output != OutputFormat::table) {
      entry["facts"] = to_json(read_device_facts(*session.host, address));
    }
    entry["vgpu_framework"] = gpu == nullptr ? "none" : std::string(text(gpu->framework));
    entry["vgpus"] = json::array();
    if (gpu != nullptr) {
      for (const VgpuDevice& device : gpu->devices) {
        entry["vgpus"].push_back(
            {{"id", device.id.text}, {"type", device.type_name}, {"type_id", device.type_id}});
      }
    }
    entry["holders"] = json::array();
    std::vector<std::string> users;
    for (const Holder& holder : holders_of(*seen, function, group)) {
      entry["holders"].push_back(to_json(holder));
      users.push_back(holder.text());
    }
    entry["problem"] = function.problem ? to_json(*function.problem) : json(nullptr);
    if (function.problem) users.push_back("unreadable: " + function.problem->message);
    list.push_back(std::move(entry));
    table.add({address.text(), model, function.iommu_group ? std::to_string(*function.iommu_group) : "none",
               driver_text(function), join(others, "\n"), vgpu_text(gpu), join(users, "\n")});
  }
  std::string text = list.empty() ? "no accelerators on this host\n" : table.text();
  if (const auto iommu = require_iommu(seen->inventory); !iommu) {
    text += fmt::format("nothing here can be given to a VM: {}\nhint: {}\n", iommu.error().message,
                        iommu.error().hint);
  }
  for (const std::string& note : seen->use.unknown) text += "note: " + note + "\n";
  for (const std::string& note : seen->vgpus.notes) text += "note: " + note + "\n";
  print(session,
        {{"accelerators", list},
         {"iommu", seen->inventory.has_iommu()},
         {"iommufd", has_iommufd(*session.host)},
         {"unknown", seen->use.unknown},
         {"notes", seen->vgpus.notes}},
        text);
  return ExitStatus::done;
}

}  // namespace ferry
