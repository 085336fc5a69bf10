// SPDX-License-Identifier: Apache-2.0
#include "host/node_apply.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "vfio/move_record.h"
#include "vfio/stopped_services.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

struct Seen {
  Inventory inventory;
  VgpuInventory vgpus;
  WantedState wanted;
};

bool is_away(const WantedState& wanted, const PciAddress& gpu) {
  return wanted.modes.at(gpu) == Mode::passthrough;
}

// What cannot hold, whatever is done: nothing is begun then.
Result<> check_possible(const Seen& seen) {
  bool any_away = false;
  for (const auto& [gpu, mode] : seen.wanted.modes) {
    if (mode != Mode::passthrough || seen.inventory.find(gpu) == nullptr) continue;
    any_away = true;
    for (const PciAddress& other : concerned(seen.inventory, {gpu})) {
      if (!seen.wanted.modes.contains(other) || is_away(seen.wanted, other)) continue;
      return fail(Errc::refused,
                  fmt::format("{} shall be given away and {} shall not, and they share an IOMMU group",
                              gpu.text(), other.text()),
                  "give both one mode, or the card another slot");
    }
  }
  return any_away ? require_iommu(seen.inventory) : Result<>();
}

// Its vGPUs would go for nothing: a GPU with virtual functions is refused when it shall be given away.
void leave_those_with_functions(Seen& seen) {
  for (const auto& [address, mode] : seen.wanted.modes) {
    const VgpuGpu* gpu = seen.vgpus.find(address);
    if (mode != Mode::passthrough || gpu == nullptr || gpu->function.sriov_numvfs == 0) continue;
    std::erase_if(seen.wanted.vgpus.items, [&](const ProfileItem& item) { return item.matches(*gpu); });
  }
}

Result<Seen> see(const NodeHost& host, const Policy& policy) {
  auto inventory = scan(*host.moves.host);
  if (!inventory) return fail(std::move(inventory).error());
  auto vgpus = scan_known_vgpus(*host.moves.host, *inventory, host.moves.rules);
  if (!vgpus) return fail(std::move(vgpus).error());
  WantedState wanted = wanted_state(policy, *vgpus, host.models);
  Seen seen{.inventory = std::move(*inventory), .vgpus = std::move(*vgpus), .wanted = std::move(wanted)};
  leave_those_with_functions(seen);
  return seen;
}

// On vfio, or left half-way by a run that was killed: the record says so.
Result<MoveRequest> to_give_back(const NodeHost& host, const Seen& seen) {
  auto record = read_records(*host.moves.host);
  if (!record) return fail(std::move(record).error());
  MoveRequest request;
  for (const auto& [address, mode] : seen.wanted.modes) {
    const PciFunction* gpu = seen.inventory.find(address);
    if (mode == Mode::passthrough || gpu == nullptr || !host.moves.rules.match(*gpu)) continue;
    if (on_vfio_driver(*gpu) || record->speaks_of(*gpu)) request.accelerators.push_back(address);
  }
  return request;
}

MoveRequest to_give_away(const NodeHost& host, const Seen& seen) {
  MoveRequest request;
  request.untouchable = carriers_of_vgpus(seen.vgpus);
  request.release = seen.wanted.release;
  for (const auto& [address, mode] : seen.wanted.modes) {
    const PciFunction* gpu = seen.inventory.find(address);
    if (mode == Mode::passthrough && gpu != nullptr && host.moves.rules.match(*gpu))
      request.accelerators.push_back(address);
  }
  return request;
}

// Nobody is asked who uses nothing, and a host without an IOMMU may well give nothing away. The last stage
// still sees to what a killed run has left stopped; the first leaves it to the last.
Result<MoveOutcome> move(const NodeHost& host, const MoveRequest& request, Direction direction) {
  if (!request.accelerators.empty()) return apply_moves(host.moves, request, direction);
  return direction == Direction::to_vfio ? start_what_was_stopped(host.moves) : MoveOutcome{};
}
Result<MovePreview> preview(const NodeHost& host, const MoveRequest& request, Direction direction) {
  if (!request.accelerators.empty()) return preview_moves(host.moves, request, direction);
  if (direction == Direction::back) return MovePreview{};
  auto notes = notes_on_stopped_services(*host.moves.host);
  if (!notes) return fail(std::move(notes).error());
  return MovePreview{.plan = {}, .notes = std::move(*notes)};
}

// A GPU that could not be given back carries nothing, and has been told about already.
Profile without_those_still_away(Seen seen, const MoveOutcome& given_back) {
  for (const MoveResult& result : given_back.results) {
    if (result.status == MoveResult::Status::done || result.status == MoveResult::Status::already) continue;
    for (const PciAddress& device : result.devices) {
      const VgpuGpu* gpu = seen.vgpus.find(device);
      std::erase_if(seen.wanted.vgpus.items,
                    [&](const ProfileItem& item) { return gpu != nullptr && item.matches(*gpu); });
    }
  }
  return std::move(seen.wanted.vgpus);
}

bool contains(const std::vector<PciAddress>& addresses, const PciAddress& address) {
  return std::ranges::find(addresses, address) != addresses.end();
}

}  // namespace

Result<NodePreview> preview_policy(const NodeHost& host, const Policy& policy) {
  auto seen = see(host, policy);
  if (!seen) return fail(std::move(seen).error());
  if (auto possible = check_possible(*seen); !possible) return fail(std::move(possible).error());
  const auto back = to_give_back(host, *seen);
  if (!back) return fail(Error(back.error()));
  auto given_back = preview(host, *back, Direction::back);
  if (!given_back) return fail(std::move(given_back).error());

  auto view = look(host.vgpus, {&seen->wanted.vgpus, 1});
  if (!view) return fail(std::move(view).error());
  VgpuPlan vgpus = plan_profile(seen->wanted.vgpus, *view);
  MoveRequest away = to_give_away(host, *seen);
  for (GpuPlan& gpu : vgpus.gpus) {
    if (contains(back->accelerators, gpu.gpu)) {
      gpu.refusal.reset();
      gpu.notes = {"its vGPUs are planned once it is back on its own driver"};
    }
    if (!gpu.refusal) away.untouchable.erase(gpu.gpu);  // by then they are gone
  }
  auto given_away = preview(host, away, Direction::to_vfio);
  if (!given_away) return fail(std::move(given_away).error());
  return NodePreview{
      .given_back = std::move(*given_back), .vgpus = std::move(vgpus), .given_away = std::move(*given_away)};
}

namespace {

// The stages; one that fails ends them.
Result<NodeOutcome> apply_stages(const NodeHost& host, const Policy& policy) {
  auto seen = see(host, policy);
  if (!seen) return fail(std::move(seen).error());
  if (auto possible = check_possible(*seen); !possible) return fail(std::move(possible).error());
  const auto back = to_give_back(host, *seen);
  if (!back) return fail(Error(back.error()));
  NodeOutcome outcome;
  auto given_back = move(host, *back, Direction::back);
  if (!given_back) return fail(std::move(given_back).error());
  outcome.given_back = std::move(*given_back);

  const Profile carried = without_those_still_away(std::move(*seen), outcome.given_back);
  auto vgpus = apply_profile(host.vgpus, carried);
  if (!vgpus) {
    outcome.error = std::move(vgpus).error().during("vGPUs");
    return outcome;
  }
  outcome.vgpus = std::move(*vgpus);

  seen = see(host, policy);
  if (!seen) {
    outcome.error = std::move(seen).error();
    return outcome;
  }
  auto given_away = move(host, to_give_away(host, *seen), Direction::to_vfio);
  if (given_away) {
    outcome.given_away = std::move(*given_away);
  } else {
    outcome.error = std::move(given_away).error();
  }
  return outcome;
}

}  // namespace

// The last stage starts what a killed run has left stopped; where it is not reached, that is done all the
// same.
Result<NodeOutcome> apply_policy(const NodeHost& host, const Policy& policy) {
  auto outcome = apply_stages(host, policy);
  if (outcome && !outcome->error) return outcome;
  auto started = start_what_was_stopped(host.moves);
  if (outcome && started) {
    std::ranges::move(started->notes, std::back_inserter(outcome->given_away.notes));
    std::ranges::move(started->errors, std::back_inserter(outcome->given_away.errors));
    return outcome;
  }
  std::string troubles;
  if (!started) {
    troubles = "; " + started.error().message;
  } else {
    for (const Error& trouble : started->errors) troubles += "; " + trouble.message;
  }
  if (!outcome) {
    outcome.error().message += troubles;
  } else if (auto& error = outcome->error; error) {
    error->message += troubles;
  }
  return outcome;
}

}  // namespace ferry
