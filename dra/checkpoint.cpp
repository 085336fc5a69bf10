// SPDX-License-Identifier: Apache-2.0
#include "dra/checkpoint.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/claim_fields.h"
#include "api/files.h"
#include "common/text/json.h"
#include "common/text/json_fields.h"
#include "common/text/text.h"

namespace ferry::dra {
namespace {

struct CounterEntry {
  std::string name = {};
  std::uint64_t value = 0;
};

template <typename Io, SameAs<CounterEntry> Value>
void fields(Io& io, Value& counter) {
  io("name", counter.name);
  io("value", counter.value);
}

/// {"name": "size-6144"}
struct GroupEntry {
  std::string name = {};
};

template <typename Io, SameAs<GroupEntry> Value>
void fields(Io& io, Value& group) {
  io("name", group.name);
}

}  // namespace

template <typename Io, SameAs<CounterConsumption> Value>
void fields(Io& io, Value& consumption) {
  io("name", consumption.set);
  io.check("name", !consumption.set.empty(), "expected the name of a counter set");
  std::vector<GroupEntry> groups;
  for (const std::string& group : consumption.compatibility_groups) groups.push_back({group});
  io("compatibility_groups", groups);
  if constexpr (Io::kReads)
    for (GroupEntry& group : groups) consumption.compatibility_groups.push_back(std::move(group.name));
  named_entries<CounterEntry>(io, "counters", consumption.counters);
}

template <typename Io, SameAs<Device> Value>
void fields(Io& io, Value& device) {
  io("name", device.name);
  named_entries<api::AttributeEntry>(io, "attributes", device.attributes);
  named_entries<CounterEntry>(io, "capacity", device.capacity);
  io("consumes", device.consumes);
}

template <typename Io, SameAs<CounterSet> Value>
void fields(Io& io, Value& set) {
  io("name", set.name);
  io.check("name", !set.name.empty(), "expected the name of a counter set");
  named_entries<CounterEntry>(io, "counters", set.counters);
}

template <typename Io, SameAs<ClaimDevice> Value>
void fields(Io& io, Value& device) {
  io("request", device.request);
  io("pool", device.pool);
  io("gpu", device.gpu);
  io.or_null("type", device.type);
  io.or_null("placement", device.placement);
  io.or_null("id", device.id);
  if constexpr (Io::kReads)
    for (const char* former : {"function", "mdev_uuid"})  // the keys of builds before 0.1.0
      if (device.id.empty()) io.or_null(former, device.id);
  io.or_null("resources", device.resources);
  io("device", device.device);
  auto counters = device.counters.name.empty() ? std::nullopt : std::optional<CounterSet>(device.counters);
  io.or_null("counter_set", counters);
  if constexpr (Io::kReads) device.counters = counters.value_or(CounterSet());
  for (const CounterConsumption& consumption : device.device.consumes)
    io.check("counter_set", consumption.set == device.counters.name,
             fmt::format("expected {}, from which the device consumes", consumption.set));
}

template <typename Io, SameAs<CheckpointClaim> Value>
void fields(Io& io, Value& claim) {
  io("uid", claim.uid);
  io("namespace", claim.space);
  io("name", claim.name);
  io.or_null("pod_claim", claim.pod_claim);
  io("phase", claim.phase);
  io("devices", claim.devices);
}

template <typename Io, SameAs<Checkpoint> Value>
void fields(Io& io, Value& checkpoint) {
  io.version(api::kClaimsVersion);
  io("boot_id", checkpoint.boot_id);
  io("claims", checkpoint.claims);
  if constexpr (Io::kReads) {
    std::set<std::string> uids;
    for (std::size_t i = 0; i < checkpoint.claims.size(); ++i)
      io.check(fmt::format("claims[{}].uid", i).c_str(), uids.insert(checkpoint.claims[i].uid).second,
               "another claim has it");
    std::ranges::sort(checkpoint.claims, {}, &CheckpointClaim::uid);
  }
}

namespace {

auto* find_record(auto& claims, std::string_view uid) {
  const auto found = std::ranges::find(claims, uid, &CheckpointClaim::uid);
  return found == claims.end() ? nullptr : &*found;
}

std::string label(const CheckpointClaim& claim) {
  return fmt::format("the claim {}/{} (UID {})", claim.space, claim.name, claim.uid);
}

}  // namespace

const CheckpointClaim* Checkpoint::find(std::string_view uid) const {
  return find_record(claims, uid);
}

std::string checkpoint_text(const Checkpoint& checkpoint) {
  // A claim of a GPU with mixed sizes takes 7 KB with indents, so those of a large node would be too large.
  return written_fields(checkpoint).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

Result<Checkpoint> read_checkpoint(std::string_view text) {
  return read_json(text, api::kCheckpointFile, kCheckpointHint, read_fields<Checkpoint>);
}

Checkpoint for_boot(Checkpoint checkpoint, std::string_view boot_id) {
  if (checkpoint.boot_id == boot_id) return checkpoint;
  return {.boot_id = std::string(boot_id)};
}

Result<> begin_prepare(Checkpoint& checkpoint, CheckpointClaim claim) {
  if (const CheckpointClaim* const known = checkpoint.find(claim.uid)) {
    if (known->phase == CheckpointPhase::unpreparing)
      return fail(Errc::refused, fmt::format("{} is being unprepared", label(*known)),
                  "the kubelet asks again; the claim waits until then");
    const bool same_devices = std::ranges::equal(
        known->devices, claim.devices, [](const ClaimDevice& one, const ClaimDevice& other) {
          return one.request == other.request && one.device.name == other.device.name;
        });
    if (same_devices) return {};
    return fail(Errc::refused, fmt::format("{} still has the devices of a former allocation", label(*known)),
                "the claim waits until they are undone");
  }
  for (const ClaimDevice& device : claim.devices)
    for (const CheckpointClaim& other : checkpoint.claims) {
      const std::string& name = device.device.name;
      const bool has_it =
          std::ranges::any_of(other.devices, [&](const ClaimDevice& one) { return one.device.name == name; });
      if (has_it)
        return fail(Errc::refused, fmt::format("{}: {} still has it", name, label(other)),
                    "the claim waits until that one has ended");
    }
  claim.phase = CheckpointPhase::preparing;
  checkpoint.claims.push_back(std::move(claim));
  std::ranges::sort(checkpoint.claims, {}, &CheckpointClaim::uid);
  return {};
}

Result<> finish_prepare(Checkpoint& checkpoint, std::string_view uid,
                        std::span<const api::PreparedDevice> results) {
  CheckpointClaim* const claim = find_record(checkpoint.claims, uid);
  if (claim == nullptr) return fail(Errc::not_found, fmt::format("no claim has the UID {}", uid));
  if (claim->phase == CheckpointPhase::unpreparing)
    return fail(Errc::failed, fmt::format("{} is being unprepared", label(*claim)));
  if (claim->devices.size() != results.size())
    return fail(Errc::failed, fmt::format("{} has {}, and hostd has prepared {}", label(*claim),
                                          counted(claim->devices.size(), "device"), results.size()));
  for (std::size_t i = 0; i < results.size(); ++i)
    claim->devices[i].id = results[i].function ? results[i].function->text() : results[i].mdev_uuid;
  claim->phase = CheckpointPhase::prepared;
  return {};
}

bool begin_again(Checkpoint& checkpoint, std::string_view uid) {
  CheckpointClaim* const claim = find_record(checkpoint.claims, uid);
  const auto has_id = [](const ClaimDevice& device) { return !device.id.empty(); };
  if (claim == nullptr ||
      (claim->phase != CheckpointPhase::prepared && std::ranges::none_of(claim->devices, has_id)))
    return false;
  claim->phase = CheckpointPhase::preparing;
  return true;
}

bool begin_unprepare(Checkpoint& checkpoint, std::string_view uid) {
  CheckpointClaim* const claim = find_record(checkpoint.claims, uid);
  if (claim == nullptr) return false;
  claim->phase = CheckpointPhase::unpreparing;
  return true;
}

void finish_unprepare(Checkpoint& checkpoint, std::string_view uid) {
  std::erase_if(checkpoint.claims, [&](const CheckpointClaim& claim) { return claim.uid == uid; });
}

std::vector<HeldDevice> held_devices(const Checkpoint& checkpoint) {
  std::vector<HeldDevice> out;
  for (const CheckpointClaim& claim : checkpoint.claims)
    for (const ClaimDevice& device : claim.devices)
      out.push_back({.claim = claim.uid,
                     .asked = device.asked(),
                     .device = device.device,
                     .counters = device.counters});
  return out;
}

}  // namespace ferry::dra
