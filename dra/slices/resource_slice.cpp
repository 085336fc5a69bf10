// SPDX-License-Identifier: Apache-2.0
#include "dra/slices/resource_slice.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/json.h"
#include "common/text/text.h"
#include "dra/names.h"

namespace ferry::dra {
namespace {

using nlohmann::json;

constexpr const char* kNoSchedule = "NoSchedule";
constexpr const char* kNoExecute = "NoExecute";
constexpr const char* kProbe = "probe";

json quantities(const Counters& counters) {
  json out = json::object();
  for (const auto& [name, value] : counters) out[name]["value"] = quantity_text(value);
  return out;
}

json json_of(const CounterSet& set) {
  return {{"name", set.name}, {"counters", quantities(set.counters)}};
}

json json_of(const CounterConsumption& consumption) {
  json out = {{"counterSet", consumption.set}, {"counters", quantities(consumption.counters)}};
  if (!consumption.compatibility_groups.empty())
    out["compatibilityGroups"] = consumption.compatibility_groups;
  return out;
}

json json_of(const Taint& taint) {
  json out = {{"key", taint.key}, {"effect", taint.evicts ? kNoExecute : kNoSchedule}};
  if (!taint.value.empty()) out["value"] = taint.value;
  if (!taint.time_added.empty()) out["timeAdded"] = taint.time_added;
  return out;
}

json json_of(const Device& device) {
  json out = {{"name", device.name},
              {"attributes", attributes_json(device.attributes)},
              {"capacity", quantities(device.capacity)}};
  for (const CounterConsumption& consumption : device.consumes)
    out["consumesCounters"].push_back(json_of(consumption));
  for (const Taint& taint : device.taints) out["taints"].push_back(json_of(taint));
  return out;
}

/// Keeps the first fault of a document; values at fault are empty.
class Reader {
 public:
  const std::string& fault() const { return fault_; }

  std::string text(const json& object, const char* key) {
    const json& value = json_at(object, key);
    if (!value.is_string()) return blame(key, "expected a text"), std::string();
    return value.get<std::string>();
  }

  std::uint64_t number(const json& object, const char* key) {
    const json& value = json_at(object, key);
    if (!value.is_number_unsigned()) return blame(key, "expected a number from 0 on"), std::uint64_t{0};
    return value.get<std::uint64_t>();
  }

  /// `read` makes a value of each element of a list, which may be absent.
  template <typename Read>
  auto list(const json& object, const char* key, Read read)
      -> std::vector<decltype(read(std::declval<const json&>()))> {
    std::vector<decltype(read(std::declval<const json&>()))> out;
    const json& values = json_at(object, key);
    if (values.is_null()) return out;
    if (!values.is_array()) return blame(key, "expected a list"), out;
    for (const json& value : values) out.push_back(read(value));
    return out;
  }

  Counters counters(const json& object, const char* key) {
    Counters out;
    const json& values = json_at(object, key);
    if (values.is_null()) return out;
    if (!values.is_object()) return blame(key, "expected an object"), out;
    for (const auto& [name, entry] : values.items()) {
      const auto value = parse_quantity(text_at(entry, "value"));
      if (!value) blame(key, "expected whole quantities");
      out[name] = value.value_or(0);
    }
    return out;
  }

 private:
  void blame(const char* key, const char* problem) {
    if (fault_.empty()) fault_ = fmt::format("{}: {}", key, problem);
  }

  std::string fault_;
};

Attributes read_attributes(const json& values) {
  Attributes out;
  if (!values.is_object()) return out;
  for (const auto& [name, value] : values.items()) {
    const json& number = json_at(value, "int");
    const json& text = json_at(value, "string");
    if (number.is_number_integer())
      out[name] = number.get<std::int64_t>();
    else if (text.is_string())
      out[name] = text.get<std::string>();
  }
  return out;
}

Device read_device(Reader& reader, const json& object) {
  Device out{.name = reader.text(object, "name"),
             .attributes = read_attributes(json_at(object, "attributes")),
             .capacity = reader.counters(object, "capacity")};
  out.consumes = reader.list(object, "consumesCounters", [&](const json& value) {
    CounterConsumption consumption{.set = reader.text(value, "counterSet"),
                                   .counters = reader.counters(value, "counters")};
    for (const json& group : json_at(value, "compatibilityGroups"))
      if (group.is_string()) consumption.compatibility_groups.push_back(group.get<std::string>());
    return consumption;
  });
  const json& taints = json_at(object, "taints");
  if (!taints.is_array()) return out;
  for (const json& taint : taints) {
    const std::string effect = text_at(taint, "effect");
    if (effect != kNoSchedule && effect != kNoExecute) continue;  // Ferry has none such
    out.taints.push_back({.key = text_at(taint, "key"),
                          .value = text_at(taint, "value"),
                          .evicts = effect == kNoExecute,
                          .time_added = text_at(taint, "timeAdded")});
  }
  return out;
}

}  // namespace

Attribute attribute_of(const Device& device, const std::string& name) {
  const auto found = device.attributes.find(name);
  return found == device.attributes.end() ? Attribute() : found->second;
}

bool is_whole(const Device& device) {
  return attribute_of(device, kType) == Attribute(kWhole);
}

std::uint64_t framebuffer_of(const Device& device) {
  const auto found = device.capacity.find(kFramebuffer);
  return found == device.capacity.end() ? 0 : found->second;
}

bool has_compatibility_groups(const Device& device) {
  return std::ranges::any_of(device.consumes, [](const CounterConsumption& consumption) {
    return !consumption.compatibility_groups.empty();
  });
}

std::map<std::string, Counters> consumed_counters(const Device& device) {
  std::map<std::string, Counters> out;
  for (const CounterConsumption& consumption : device.consumes) out[consumption.set] = consumption.counters;
  return out;
}

void add_counters(const Device& device, const std::string& set, Counters& out) {
  for (const CounterConsumption& consumption : device.consumes)
    if (consumption.set == set)
      for (const auto& [counter, value] : consumption.counters) out[counter] += value;
}

json attributes_json(const Attributes& attributes) {
  json out = json::object();
  for (const auto& [name, value] : attributes) {
    if (const auto* const number = std::get_if<std::int64_t>(&value))
      out[name]["int"] = *number;
    else
      out[name]["string"] = std::get<std::string>(value);
  }
  return out;
}

json slice_json(const ResourceSlice& slice) {
  json metadata = {{"generateName", slice_name_prefix(slice.index, slice.owner.node)}};
  if (!slice.owner.node_uid.empty()) {
    const json owner = {
        {"apiVersion", "v1"}, {"kind", "Node"}, {"name", slice.owner.node}, {"uid", slice.owner.node_uid}};
    metadata["ownerReferences"] = json::array({owner});
  }
  json spec = {
      {"driver", kDriver},
      {"nodeName", slice.owner.node},
      {"pool",
       {{"name", slice.pool}, {"generation", slice.generation}, {"resourceSliceCount", slice.count}}}};
  for (const CounterSet& set : slice.counter_sets) spec["sharedCounters"].push_back(json_of(set));
  for (const Device& device : slice.devices) spec["devices"].push_back(json_of(device));
  return {{"apiVersion", "resource.k8s.io/v1"},
          {"kind", "ResourceSlice"},
          {"metadata", std::move(metadata)},
          {"spec", std::move(spec)}};
}

Result<ResourceSlice> read_slice(const json& object) {
  const json& metadata = json_at(object, "metadata");
  const json& spec = json_at(object, "spec");
  const json& pool = json_at(spec, "pool");
  const std::string name = text_at(metadata, "name");
  // The number at the beginning of the name; 0: another program chose the name.
  const std::string numbered = name.empty() ? text_at(metadata, "generateName") : name;
  const auto index = whole_number<std::size_t>(std::string_view(numbered).substr(0, numbered.find('-')), 16);
  Reader reader;
  ResourceSlice out{
      .owner = {.node = text_at(spec, "nodeName"), .node_uid = {}},
      .pool = reader.text(pool, "name"),
      .generation = reader.number(pool, "generation"),
      .index = index.value_or(0),
      .count = reader.number(pool, "resourceSliceCount"),
      .counter_sets = reader.list(spec, "sharedCounters",
                                  [&](const json& value) {
                                    return CounterSet{.name = reader.text(value, "name"),
                                                      .counters = reader.counters(value, "counters")};
                                  }),
      .devices = reader.list(spec, "devices", [&](const json& value) { return read_device(reader, value); })};
  if (const json& owners = json_at(metadata, "ownerReferences"); owners.is_array() && !owners.empty())
    out.owner.node_uid = text_at(owners.front(), "uid");
  if (!reader.fault().empty())
    return fail(Errc::malformed_host, fmt::format("ResourceSlice {}: {}", name, reader.fault()));
  return out;
}

ResourceSlice probe_slice(const SliceOwner& owner) {
  const CounterConsumption consumption{
      .set = kProbe, .counters = {{kProbe, 1}}, .compatibility_groups = {kProbe}};
  const Taint taint{.key = fmt::format("{}/{}", kDriver, kProbe), .value = {}};
  return {.owner = owner,
          .pool = pool_name(owner.node),
          .generation = 1,
          .count = 1,
          .devices = {{.name = kProbe, .consumes = {consumption}, .taints = {taint}}}};
}

Result<ServerFeatures> features_of_probe(const json& answer) {
  const auto read = read_slice(answer);
  if (!read) return fail(read.error());
  const Device sent = probe_slice({.node = {}}).devices.front();
  const Device kept = read->devices.empty() ? Device{.name = {}} : read->devices.front();
  const bool counters = consumed_counters(kept) == consumed_counters(sent);
  return ServerFeatures{.counters = counters,
                        .taints = !kept.taints.empty(),
                        .compatibility_groups = counters && has_compatibility_groups(kept)};
}

}  // namespace ferry::dra
