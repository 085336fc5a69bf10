// SPDX-License-Identifier: Apache-2.0
#include "cli/node_look.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>

#include "cli/policy_inputs.h"
#include "common/presence.h"
#include "host/state_file.h"
#include "host/wanted_file.h"
#include "vfio/driver_override.h"
#include "vgpu-dm/stable_uuid.h"

namespace ferry {
namespace {

constexpr const char* kStateFile = "run/ferry/state.json";
constexpr const char* kWantedFile = "var/lib/ferry/wanted.json";
constexpr const char* kHostd = "run/ferry/hostd.presence";

/// The value. An error becomes a note.
template <typename T>
T or_note(Result<T> result, NodeSight& sight) {
  if (result) return std::move(*result);
  sight.notes.push_back(result.error().message);
  return {};
}

std::optional<NodeState> read_state(const HostFs& host, NodeSight& sight) {
  const auto text = host.read_file(kStateFile);
  if (!text && is_gone(text.error())) return std::nullopt;
  auto state = text ? read_state_file(*text) : Result<NodeState>(fail(Error(text.error())));
  if (state) return std::move(*state);
  sight.notes.push_back(state.error().message);
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
void read_overrides_for(const Session& session, Depth depth, const std::vector<PciAddress>& members,
                        Inventory& inventory) {
  if (depth == Depth::all) return read_overrides(*session.host, *session.writer, members, inventory);
  constexpr std::chrono::milliseconds kShortly{250};
  auto accelerators = members;
  std::erase_if(accelerators,
                [&](const PciAddress& address) { return !session.rules.match(*inventory.find(address)); });
  Inventory read = inventory;
  read_overrides(*session.host, *session.writer, accelerators, read, kShortly);
  for (const PciAddress& address : accelerators)
    inventory.functions.at(address).driver_override = read.find(address)->driver_override;
}

void add_use(const Session& session, NodeSight& sight, const std::vector<PciAddress>& members) {
  auto questions = use_questions(*session.host, sight.inventory, members);
  for (const VgpuGpu& gpu : sight.vgpus.gpus) {
    for (const VgpuDevice& device : gpu.devices) questions.push_back(use_question(device));
  }
  auto use = session.probe->look(questions);
  if (use) {
    sight.use = std::move(*use);
  } else {
    sight.use.unknown.push_back(use.error().message);  // a captured machine has no processes
  }
}

}  // namespace

Result<NodeSight> look_at_node(const Session& session, Depth depth) {
  NodeSight sight;
  auto inventory = scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  sight.inventory = std::move(*inventory);
  auto vgpus = scan_vgpus(*session.host, sight.inventory, session.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  sight.vgpus = std::move(*vgpus);
  sight.drivers = VfioDriverTable::read(*session.host);

  const auto members = asked_of(sight.inventory, session.rules);
  read_overrides_for(session, depth, members, sight.inventory);
  if (depth == Depth::all) {
    for (const auto& [address, function] : sight.inventory.functions) {
      if (session.rules.match(function))
        sight.facts.emplace(address, read_device_facts(*session.host, address));
    }
  }
  add_use(session, sight, members);
  sight.record = or_note(read_records(*session.host), sight);
  sight.notes.insert(sight.notes.end(), sight.record.notes.begin(), sight.record.notes.end());
  sight.stuck = or_note(stuck_writes(*session.host), sight);
  sight.offered = or_note(read_offered_devices(*session.host), sight);
  sight.state = read_state(*session.host, sight);
  if (sight.state) {
    sight.hostd_runs = is_present(*session.host, kHostd).value_or(false);
    sight.state_age = age_of(*session.host, kStateFile);
  }
  return sight;
}

NodePicture view_of(const Session& session, const NodeSight& sight) {
  return view_of(sight, session.rules, model_names(session));
}

Result<StoryInputs> look_for_stories(const Session& session) {
  auto sight = look_at_node(session, Depth::all);
  if (!sight) return fail(std::move(sight).error());
  StoryInputs inputs{.sight = std::move(*sight), .view = {}, .places = {}};
  inputs.view = view_of(session, inputs.sight);
  inputs.node = node_identity(*session.host).value_or("");
  for (const auto& [address, function] : inputs.sight.inventory.functions)
    inputs.places.emplace(address, read_place(*session.host, address));
  if (const auto wanted = read_wanted(*session.host, kWantedFile); !wanted) {
    inputs.view.notes.push_back(wanted.error().message);
  } else if (*wanted) {
    inputs.asked_for = (*wanted)->file.policy;
  }
  inputs.hostd_runs = is_present(*session.host, kHostd).value_or(false);
  inputs.plugin_runs = is_present(*session.host, kPluginPresence).value_or(false);
  return inputs;
}

}  // namespace ferry
