// SPDX-License-Identifier: Apache-2.0
// Reads the vGPUs of an item (a part of ItemReader).
#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "common/text/text.h"
#include "vgpu-dm/profile/item_reader.h"

namespace ferry::vgpu {
namespace {

using Kind = ConfigNode::Kind;

constexpr const char* kCount = "count";
constexpr const char* kPlacement = "placement";
constexpr std::int64_t kMostVgpus = 65536;  // far above any GPU; keeps sums small

}  // namespace

Result<> ItemReader::read_vgpus(const ConfigNode& node, const std::string& path, ProfileItem& item,
                                Counts counts) const {
  if (node.kind == Kind::null) return {};
  if (node.kind != Kind::map) {
    return refuse(node, path,
                  fmt::format("expected a map from type name to count, found {}", node.described()),
                  "as in {L40S-12Q: 4}; {} for no vGPUs at all");
  }
  std::unordered_map<std::string, std::string> meanings;  // key: the driver's name; value: the name written
  for (const ConfigMember& member : node.members) {
    const std::string key = path + "." + member.key.text;
    auto type = VgpuTypeName::parse(member.key.text);
    if (!type) return refuse(member.key, path, std::move(type).error());
    Result<VgpuCount> entry;
    if (counts == Counts::detailed && member.value.kind == Kind::map) {
      entry = read_details(member.value, key);
    } else if (auto count = read_count(member.value, key)) {
      entry->count = *count;
    } else {
      entry = fail(std::move(count).error());
    }
    if (!entry) return fail(std::move(entry).error());
    if (!item.vgpus.empty() && item.vgpus.front().type.is_mig_backed() != type->is_mig_backed()) {
      return refuse(
          member.key, key,
          fmt::format("a GPU cannot carry it together with {}: one is MIG-backed, the other time-sliced",
                      item.vgpus.front().type.text()),
          "give each kind an item of its own, for other GPUs");
    }
    if (const auto [other, fresh] = meanings.emplace(type->driver_short_name(), member.key.text); !fresh) {
      const std::string first = other->second;
      const std::string same = fmt::format("means the same type as {}", first);
      if (!let_pass(member.key, key, same + "; the counts add up")) {
        return refuse(member.key, key, same, "keep one of them, with the sum of the counts");
      }
      const auto earlier =
          std::ranges::find_if(item.vgpus, [&](const VgpuCount& one) { return one.type.text() == first; });
      earlier->count += entry->count;
      continue;
    }
    if (auto r = check_placement(member, key, *type, *entry, item); !r) return r;
    entry->type = std::move(*type);
    entry->place = place(member.key);
    item.vgpus.push_back(std::move(*entry));
  }
  return {};
}

Result<std::uint32_t> ItemReader::read_count(const ConfigNode& node, const std::string& key) const {
  const auto number = read_number(node, key);
  if (!number) {
    return refuse(
        node, key,
        fmt::format("the count must be a plain whole number such as 4, found {}", node.described()));
  }
  if (*number <= 0) {
    return refuse(node, key, fmt::format("the count must be above 0, found {}", *number),
                  "leave the type out for none of it");
  }
  if (*number > kMostVgpus) {
    return refuse(node, key, fmt::format("no GPU carries {} vGPUs", *number));
  }
  return static_cast<std::uint32_t>(*number);
}

Result<VgpuCount> ItemReader::read_details(const ConfigNode& node, const std::string& key) const {
  if (auto known = check_keys(node, key, {kCount, kParams, kPlacement}); !known) {
    return fail(std::move(known).error());
  }
  const ConfigMember* number = node.find(kCount);
  if (number == nullptr) return refuse(node, key + "." + kCount, "the key is missing");
  auto count = read_count(number->value, key);
  if (!count) return fail(std::move(count).error());
  VgpuCount entry;
  entry.count = *count;
  if (const ConfigMember* params = node.find(kParams)) {
    auto read = read_params(params->value, key + "." + kParams);
    if (!read) return fail(std::move(read).error());
    entry.params = std::move(*read);
  }
  if (const ConfigMember* placement = node.find(kPlacement)) {
    if (auto r = read_placement(placement->value, key + "." + kPlacement, entry); !r) {
      return fail(std::move(r).error());
    }
  }
  return entry;
}

Result<> ItemReader::read_placement(const ConfigNode& node, const std::string& key, VgpuCount& entry) const {
  auto ids = read_some(node, key, "placement IDs");
  if (!ids) return fail(std::move(ids).error());
  std::set<std::uint32_t> seen;
  for (const ConfigNode* id : *ids) {
    const auto number = read_number(*id, key);
    if (!number || *number < 0 || *number > std::numeric_limits<std::uint16_t>::max()) {
      return refuse(*id, key,
                    fmt::format("expected a plain whole number such as 0 or 4, found {}", id->described()));
    }
    if (!seen.insert(static_cast<std::uint32_t>(*number)).second) {
      return refuse(*id, key, fmt::format("{} stands twice: two vGPUs cannot have one place", *number));
    }
    entry.placement.push_back(static_cast<std::uint32_t>(*number));
  }
  if (entry.placement.size() == entry.count) return {};
  return refuse(node, key,
                fmt::format("{} given for {}", counted(entry.placement.size(), "placement ID"),
                            counted(entry.count, "vGPU")),
                "give one for each, or leave the key out: then the driver chooses");
}

Result<> ItemReader::check_placement(const ConfigMember& member, const std::string& key,
                                     const VgpuTypeName& type, const VgpuCount& entry,
                                     const ProfileItem& item) const {
  if (entry.placement.empty()) return {};
  if (type.is_mig_backed()) {
    return refuse(member.key, key + "." + kPlacement,
                  fmt::format("{} is MIG-backed: its place is its GPU instance's", type.text()),
                  "leave the key out");
  }
  for (const VgpuCount& other : item.vgpus) {
    for (const std::uint32_t id : entry.placement) {
      if (std::ranges::find(other.placement, id) == other.placement.end()) continue;
      return refuse(
          member.key, key + "." + kPlacement,
          fmt::format("{} is asked for by {} too: two vGPUs cannot have one place", id, other.type.text()));
    }
  }
  return {};
}

Result<VgpuParams> ItemReader::read_params(const ConfigNode& node, const std::string& path) const {
  if (node.kind == Kind::null || node.kind == Kind::list) {
    return refuse(node, path, fmt::format("expected a string or a map, found {}", node.described()),
                  R"(as in "frame_rate_limiter=0", or {frame_rate_limiter: 0}; "" for none)");
  }
  std::string text = node.text;
  for (const ConfigMember& member : node.members) {
    if (member.value.kind != Kind::scalar) {
      return refuse(member.value, path + "." + member.key.text,
                    fmt::format("expected a value, found {}", member.value.described()));
    }
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", member.key.text, member.value.text);
  }
  auto params = VgpuParams::parse(text);
  if (!params) return refuse(node, path, std::move(params).error());
  // A blank or a comma in a key or a value of the map would make two parameters of it.
  if (node.kind == Kind::map && params->entries.size() != node.members.size()) {
    return refuse(node, path, "a key or a value has a blank or a comma in it");
  }
  return params;
}

}  // namespace ferry::vgpu
