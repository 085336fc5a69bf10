// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/node_look.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>

#include "api/files.h"
#include "api/host_status.h"
#include "cli/verbs/policy_inputs.h"
#include "host/desired_state.h"
#include "hostfs/locks.h"
#include "vfio/bind/driver_choice.h"
#include "vgpu-dm/plan/stable_uuid.h"

namespace ferry::cli {
namespace {

/// The value. An error becomes a note.
template <typename T>
T or_note(Result<T> result, host::NodeSnapshot& sight) {
  if (result) return std::move(*result);
  sight.notes.push_back(result.error().text());
  return {};
}

std::optional<api::HostStatus> read_state(const HostFs& host, host::NodeSnapshot& sight) {
  const auto text = host.read_file(api::kStatusFile);
  if (!text && is_gone(text.error())) return std::nullopt;
  auto state = text ? api::read_host_status(*text) : Result<api::HostStatus>(fail(Error(text.error())));
  if (state) return std::move(*state);
  sight.notes.push_back(state.error().text());
  return std::nullopt;
}

std::optional<std::chrono::seconds> age_of(const HostFs& host, const char* path) {
  const auto file = host.open(path, O_RDONLY);
  struct stat status {};
  if (!file || ::fstat(file->get(), &status) != 0) return std::nullopt;
  const auto written = std::chrono::system_clock::from_time_t(status.st_mtime);
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now() - written);
  return std::max(age, std::chrono::seconds{0});
}

// A row of `status` waits only shortly for a driver that hangs. Without its answer the row stays as the scan
// filled it.
void read_overrides_for(const Session& session, Depth depth, const std::vector<vfio::PciAddress>& members,
                        vfio::Inventory& inventory) {
  if (depth == Depth::all) return vfio::read_overrides(*session.host, *session.writer, members, inventory);
  constexpr std::chrono::milliseconds kShortly{1000};
  auto accelerators = members;
  std::erase_if(accelerators, [&](const vfio::PciAddress& address) {
    return !session.rules.match(*inventory.find(address));
  });
  vfio::Inventory read = inventory;
  vfio::read_overrides(*session.host, *session.writer, accelerators, read, kShortly);
  for (const vfio::PciAddress& address : accelerators)
    inventory.functions.at(address).driver_override = read.find(address)->driver_override;
}

void add_use(const Session& session, host::NodeSnapshot& sight,
             const std::vector<vfio::PciAddress>& members) {
  auto questions = vfio::use_questions(*session.host, sight.inventory, members);
  for (const mdev::VgpuGpu& gpu : sight.vgpus.gpus) {
    for (const mdev::VgpuDevice& device : gpu.devices) questions.push_back(mdev::use_question(device));
  }
  auto use = session.probe->look(questions);
  if (use) {
    sight.use = std::move(*use);
  } else {
    sight.use.unknown.push_back(use.error().message);  // a captured machine has no processes
  }
}

}  // namespace

Result<host::NodeSnapshot> look_at_node(const Session& session, Depth depth) {
  host::NodeSnapshot sight;
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  sight.inventory = std::move(*inventory);
  auto vgpus = mdev::scan_vgpus(*session.host, sight.inventory, session.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  sight.vgpus = std::move(*vgpus);
  sight.drivers = vfio::VfioDriverTable::read(*session.host);

  const auto members = host::asked_of(sight.inventory, session.rules);
  read_overrides_for(session, depth, members, sight.inventory);
  if (depth == Depth::all) {
    for (const auto& [address, function] : sight.inventory.functions) {
      if (session.rules.match(function))
        sight.facts.emplace(address, vfio::read_device_facts(*session.host, address));
    }
  }
  add_use(session, sight, members);
  sight.record = or_note(vfio::read_records(*session.host), sight);
  sight.notes.insert(sight.notes.end(), sight.record.notes.begin(), sight.record.notes.end());
  sight.stuck = or_note(stuck_writes(*session.host), sight);
  sight.advertised = or_note(host::read_advertised_resources(*session.host), sight);
  sight.state = read_state(*session.host, sight);
  if (sight.state) {
    sight.hostd_runs = is_present(*session.host, api::kHostdLiveness).value_or(false);
    sight.state_age = age_of(*session.host, api::kStatusFile);
  }
  return sight;
}

host::NodeDescription view_of(const Session& session, const host::NodeSnapshot& sight) {
  return view_of(sight, session.rules, model_names(session));
}

Result<ExplainInputs> look_for_stories(const Session& session) {
  auto sight = look_at_node(session, Depth::all);
  if (!sight) return fail(std::move(sight).error());
  ExplainInputs inputs{.sight = std::move(*sight), .view = {}, .places = {}};
  inputs.view = view_of(session, inputs.sight);
  inputs.node = vgpu::node_identity(*session.host).value_or("");
  for (const auto& [address, function] : inputs.sight.inventory.functions)
    inputs.places.emplace(address, vfio::read_place(*session.host, address));
  if (const auto desired = host::read_desired(*session.host, api::kDesiredFile); !desired) {
    inputs.view.notes.push_back(desired.error().text());
  } else if (*desired) {
    inputs.asked_for = (*desired)->file.policy;
  }
  inputs.hostd_runs = is_present(*session.host, api::kHostdLiveness).value_or(false);
  inputs.plugin_runs = is_present(*session.host, api::kPluginLiveness).value_or(false);
  return inputs;
}

}  // namespace ferry::cli
