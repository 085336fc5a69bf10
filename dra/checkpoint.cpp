// SPDX-License-Identifier: Apache-2.0
#include "dra/checkpoint.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/text/json.h"
#include "common/text/text.h"

namespace ferry::dra {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<std::string_view, CheckpointPhase>, 3> kPhases = {
    {{"preparing", CheckpointPhase::preparing},
     {"prepared", CheckpointPhase::prepared},
     {"unpreparing", CheckpointPhase::unpreparing}}};

// Writing.

template <typename Values, typename Write>
Json list_of(const Values& values, Write write) {
  Json out = Json::array();
  for (const auto& value : values) out.push_back(write(value));
  return out;
}

Json json_of(const Counters& counters) {
  return list_of(counters, [](const auto& counter) {
    return Json{{"name", counter.first}, {"value", counter.second}};
  });
}

Json json_of(const Attributes& attributes) {
  return list_of(attributes, [](const auto& attribute) {
    const auto& [name, value] = attribute;
    if (const auto* const number = std::get_if<std::int64_t>(&value))
      return Json{{"name", name}, {"int", *number}};
    return Json{{"name", name}, {"string", std::get<std::string>(value)}};
  });
}

Json json_of(const CounterConsumption& consumption) {
  const auto named = [](const std::string& group) { return Json{{"name", group}}; };
  return {{"name", consumption.set},
          {"compatibility_groups", list_of(consumption.compatibility_groups, named)},
          {"counters", json_of(consumption.counters)}};
}

Json json_of(const ClaimDevice& device) {
  const auto consumption = [](const CounterConsumption& one) { return json_of(one); };
  const CounterSet& set = device.counters;
  return {{"request", device.request},
          {"pool", device.pool},
          {"gpu", device.gpu.text()},
          {"type", or_null(device.type)},
          {"placement", or_null(device.placement)},
          {"id", or_null(device.id)},
          {"device",
           {{"name", device.device.name},
            {"attributes", json_of(device.device.attributes)},
            {"capacity", json_of(device.device.capacity)},
            {"consumes", list_of(device.device.consumes, consumption)}}},
          {"counter_set",
           set.name.empty() ? Json() : Json{{"name", set.name}, {"counters", json_of(set.counters)}}}};
}

Json json_of(const CheckpointClaim& claim) {
  return {{"uid", claim.uid},
          {"namespace", claim.space},
          {"name", claim.name},
          {"pod_claim", or_null(claim.pod_claim)},
          {"phase", text(claim.phase)},
          {"devices", list_of(claim.devices, [](const ClaimDevice& device) { return json_of(device); })}};
}

// Reading.

/// The first fault is kept by the document, and the address is then of no use.
vfio::PciAddress parse_address(const JsonObject& object, const char* key, const std::string& address) {
  auto parsed = vfio::PciAddress::parse(address);
  if (!parsed) object.blame(key, parsed.error().message);
  return parsed.value_or(vfio::PciAddress{});
}

Counters read_counters(const JsonObject& object, const char* key) {
  const auto read = [](const JsonObject& counter) {
    return std::pair(counter.text("name"), counter.number<std::uint64_t>("value"));
  };
  Counters out;
  for (const auto& [name, value] : object.list(key, read)) out[name] = value;
  return out;
}

std::pair<std::string, Attribute> read_attribute(const JsonObject& attribute) {
  std::string name = attribute.text("name");
  if (const auto number = attribute.number_or_none<std::int64_t>("int"))
    return {std::move(name), Attribute(*number)};
  return {std::move(name), Attribute(attribute.text("string"))};
}

std::string read_set_name(const JsonObject& set) {
  std::string name = set.text("name");
  if (name.empty()) set.blame("name", "expected the name of a counter set");
  return name;
}

CounterConsumption read_consumption(const JsonObject& consumption) {
  return {.set = read_set_name(consumption),
          .counters = read_counters(consumption, "counters"),
          .compatibility_groups = consumption.list(
              "compatibility_groups", [](const JsonObject& group) { return group.text("name"); })};
}

Device read_device(const JsonObject& device) {
  Device out{.name = device.text("name")};
  for (auto& [name, value] : device.list("attributes", read_attribute))
    out.attributes.insert_or_assign(name, std::move(value));
  out.capacity = read_counters(device, "capacity");
  out.consumes = device.list("consumes", read_consumption);
  return out;
}

CounterSet read_counter_set(const JsonObject& set) {
  return {.name = read_set_name(set), .counters = read_counters(set, "counters")};
}

ClaimDevice read_claim_device(const JsonObject& device) {
  ClaimDevice out{.request = device.text("request"),
                  .pool = device.text("pool"),
                  .gpu = parse_address(device, "gpu", device.text("gpu")),
                  .type = device.text_or_none("type"),
                  .placement = device.number_or_none<std::uint32_t>("placement"),
                  .device = {.name = {}}};
  // Builds before 0.1.0 have the other keys.
  for (const char* key : {"id", "function", "mdev_uuid"})
    if (out.id.empty()) out.id = device.text_or_none(key);
  if (auto published = device.object_or_none("device", read_device))
    out.device = std::move(*published);
  else
    device.blame("device", "expected an object");
  out.counters = device.object_or_none("counter_set", read_counter_set).value_or(CounterSet());
  for (const CounterConsumption& consumption : out.device.consumes)
    if (consumption.set != out.counters.name)
      device.blame("counter_set",
                   fmt::format("expected {}, from which the device consumes", consumption.set));
  return out;
}

CheckpointClaim read_claim(const JsonObject& claim) {
  return {.uid = claim.text("uid"),
          .space = claim.text("namespace"),
          .name = claim.text("name"),
          .pod_claim = claim.text_or_none("pod_claim"),
          .phase = claim.word("phase", parse_checkpoint_phase, CheckpointPhase::preparing),
          .devices = claim.list("devices", read_claim_device)};
}

Checkpoint read_whole(const JsonObject& file) {
  file.expect_version(api::kClaimsVersion);
  Checkpoint out{.boot_id = file.text("boot_id")};
  std::set<std::string> uids;
  out.claims = file.list("claims", [&uids](const JsonObject& claim) {
    CheckpointClaim read = read_claim(claim);
    if (!uids.insert(read.uid).second) claim.blame("uid", "another claim has it");
    return read;
  });
  std::ranges::sort(out.claims, {}, &CheckpointClaim::uid);
  return out;
}

// Steps.

auto* find_record(auto& claims, std::string_view uid) {
  const auto found = std::ranges::find(claims, uid, &CheckpointClaim::uid);
  return found == claims.end() ? nullptr : &*found;
}

std::string label(const CheckpointClaim& claim) {
  return fmt::format("the claim {}/{} (UID {})", claim.space, claim.name, claim.uid);
}

/// True if both have the same devices for the same requests.
bool has_devices_of(const CheckpointClaim& a, const CheckpointClaim& b) {
  return std::ranges::equal(a.devices, b.devices, [](const ClaimDevice& one, const ClaimDevice& other) {
    return one.request == other.request && one.device.name == other.device.name;
  });
}

/// nullptr: no claim has the device.
const CheckpointClaim* user_of(const Checkpoint& checkpoint, const std::string& device) {
  const auto found = std::ranges::find_if(checkpoint.claims, [&](const CheckpointClaim& claim) {
    return std::ranges::any_of(claim.devices,
                               [&](const ClaimDevice& one) { return one.device.name == device; });
  });
  return found == checkpoint.claims.end() ? nullptr : &*found;
}

}  // namespace

std::string_view text(CheckpointPhase phase) {
  return std::ranges::find(kPhases, phase, &std::pair<std::string_view, CheckpointPhase>::second)->first;
}

std::optional<CheckpointPhase> parse_checkpoint_phase(std::string_view word) {
  const auto* const found =
      std::ranges::find(kPhases, word, &std::pair<std::string_view, CheckpointPhase>::first);
  return found == kPhases.end() ? std::nullopt : std::optional(found->second);
}

const CheckpointClaim* Checkpoint::find(std::string_view uid) const {
  return find_record(claims, uid);
}

std::string checkpoint_text(const Checkpoint& checkpoint) {
  const Json file = {
      {"version", api::kClaimsVersion},
      {"boot_id", checkpoint.boot_id},
      {"claims", list_of(checkpoint.claims, [](const CheckpointClaim& claim) { return json_of(claim); })}};
  // A claim of a GPU with mixed sizes takes 7 KB with indents, so those of a large node would be too large.
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Checkpoint> read_checkpoint(std::string_view text) {
  return read_json(text, api::kCheckpointFile, kCheckpointHint, read_whole);
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
    if (has_devices_of(*known, claim)) return {};
    return fail(Errc::refused, fmt::format("{} still has the devices of a former allocation", label(*known)),
                "the claim waits until they are undone");
  }
  for (const ClaimDevice& device : claim.devices)
    if (const CheckpointClaim* const user = user_of(checkpoint, device.device.name))
      return fail(Errc::refused, fmt::format("{}: {} still has it", device.device.name, label(*user)),
                  "the claim waits until that one has ended");
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
      out.push_back(
          {.claim = claim.uid, .gpu = device.gpu, .device = device.device, .counters = device.counters});
  return out;
}

}  // namespace ferry::dra
