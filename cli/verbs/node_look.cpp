// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/node_look.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>

#include "api/files.h"
#include "api/host_status.h"
#include "cli/verbs/node_inputs.h"
#include "host/desired_state.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/locks.h"
#include "vfio/bind/driver_choice.h"
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

std::optional<api::HostStatus> read_state(const HostFs& host, host::NodeSnapshot& snapshot) {
  const auto text = host.read_file(api::kStatusFile);
  if (!text && is_gone(text.error())) return std::nullopt;
  auto state = text ? api::read_host_status(*text) : Result<api::HostStatus>(fail(Error(text.error())));
  if (state) return std::move(*state);
  snapshot.notes.push_back(state.error().text());
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

void add_use(const Session& session, host::NodeSnapshot& snapshot,
             const std::vector<vfio::PciAddress>& members) {
  auto questions = vfio::use_questions(*session.host, snapshot.inventory, members);
  for (const mdev::VgpuGpu& gpu : snapshot.vgpus.gpus) {
    for (const mdev::VgpuDevice& device : gpu.devices) questions.push_back(mdev::use_question(device));
  }
  auto use = session.probe->look(questions);
  if (use) {
    snapshot.use = std::move(*use);
  } else {
    snapshot.use.unknown.push_back(use.error().message);  // a captured machine has no processes
  }
}

}  // namespace

Result<host::NodeSnapshot> snapshot_node(const Session& session, Depth depth) {
  host::NodeSnapshot snapshot;
  auto inventory = vfio::scan(*session.host);
  if (!inventory) return fail(std::move(inventory).error());
  snapshot.inventory = std::move(*inventory);
  auto vgpus = mdev::scan_vgpus(*session.host, snapshot.inventory, session.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  snapshot.vgpus = std::move(*vgpus);
  snapshot.drivers = vfio::VfioDriverTable::read(*session.host);

  const auto members = host::asked_of(snapshot.inventory, session.rules);
  read_overrides_for(session, depth, members, snapshot.inventory);
  if (depth == Depth::all) {
    for (const auto& [address, function] : snapshot.inventory.functions) {
      if (session.rules.match(function))
        snapshot.facts.emplace(address, vfio::read_device_facts(*session.host, address));
    }
  }
  add_use(session, snapshot, members);
  snapshot.record = or_note(vfio::read_records(*session.host), snapshot);
  snapshot.notes.insert(snapshot.notes.end(), snapshot.record.notes.begin(), snapshot.record.notes.end());
  snapshot.stuck = or_note(stuck_writes(*session.host), snapshot);
  snapshot.advertised = or_note(host::read_advertised_resources(*session.host), snapshot);
  snapshot.state = read_state(*session.host, snapshot);
  if (snapshot.state) {
    snapshot.hostd_runs = is_present(*session.host, api::kHostdLiveness).value_or(false);
    snapshot.state_age = age_of(*session.host, api::kStatusFile);
  }
  return snapshot;
}

host::NodeDescription describe_node(const Session& session, const host::NodeSnapshot& snapshot) {
  return describe_node(snapshot, session.rules, model_names(session));
}

Result<ExplainInputs> read_explain_inputs(const Session& session) {
  auto snapshot = snapshot_node(session, Depth::all);
  if (!snapshot) return fail(std::move(snapshot).error());
  ExplainInputs inputs{.snapshot = std::move(*snapshot), .description = {}, .places = {}};
  inputs.description = describe_node(session, inputs.snapshot);
  inputs.node = vgpu::node_identity(*session.host).value_or("");
  for (const auto& [address, function] : inputs.snapshot.inventory.functions)
    inputs.places.emplace(address, vfio::read_place(*session.host, address));
  if (const auto desired = host::read_desired(*session.host, api::kDesiredFile); !desired) {
    inputs.description.notes.push_back(desired.error().text());
  } else if (*desired) {
    inputs.asked_for = (*desired)->file.policy;
  }
  inputs.hostd_runs = is_present(*session.host, api::kHostdLiveness).value_or(false);
  inputs.plugin_runs = is_present(*session.host, api::kPluginLiveness).value_or(false);
  return inputs;
}

}  // namespace ferry::cli
