// SPDX-License-Identifier: Apache-2.0
#include "agent/change_leases.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "agent/node_report.h"

namespace ferry {
namespace {

using nlohmann::json;

constexpr const char* kConfigurationAnnotation = "gpu-ferry.io/configuration";
constexpr const char* kPolicyAnnotation = "gpu-ferry.io/policy";
constexpr std::size_t kLongestVerdict = 400;

const json& at(const json& object, const char* key) {
  static const json kNothing;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kNothing : *found;
}

std::string text_at(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

const json& annotations_of(const json& lease) {
  return at(at(lease, "metadata"), "annotations");
}

// The format of metav1.MicroTime.
std::string micro_time(std::chrono::system_clock::time_point time) {
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  constexpr std::int64_t kMicros = 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)),
                     micros % kMicros);
}

/// Number of annotations with the prefix, except the key `but`.
std::size_t count_others(const json& annotations, const std::string& prefix, const std::string& but) {
  std::size_t count = 0;
  for (const auto& [key, value] : annotations.items())
    if (key.starts_with(prefix) && key != but) ++count;
  return count;
}

}  // namespace

ObjectRef change_lease(const std::string& space, std::size_t slot) {
  return {.kind = kLeases, .space = space, .name = fmt::format("{}{}", kChangeLease, slot)};
}

Selection change_leases(const std::string& space) {
  return {.kind = kLeases, .space = space, .labels = kChangeSlotLabel};
}

std::optional<ChangeSlot> change_slot_of(const json& lease) {
  const std::string name = text_at(at(lease, "metadata"), "name");
  const std::string_view prefix = kChangeLease;
  if (!name.starts_with(prefix)) return std::nullopt;
  ChangeSlot out;
  const std::string_view number = std::string_view(name).substr(prefix.size());
  const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), out.index);
  if (fault != std::errc() || end != number.data() + number.size() ||
      name != fmt::format("{}{}", prefix, out.index))
    return std::nullopt;
  out.holder = text_at(at(lease, "spec"), "holderIdentity");
  out.configuration = text_at(annotations_of(lease), kConfigurationAnnotation);
  return out;
}

void read_verdicts(const json& lease, Verdicts& out) {
  const auto slot = change_slot_of(lease);
  const json& annotations = annotations_of(lease);
  if (!slot || slot->index != 0 || !annotations.is_object()) return;
  const std::string_view proven = kProvenPrefix;
  const std::string_view failed = kFailedPrefix;
  for (const auto& [key, value] : annotations.items()) {
    if (!value.is_string()) continue;
    if (key.starts_with(proven)) out.proven.insert(key.substr(proven.size()));
    if (key.starts_with(failed)) out.failed[key.substr(failed.size())] = value.get<std::string>();
  }
}

std::string sign_of_life(const json& lease) {
  const json& spec = at(lease, "spec");
  return text_at(spec, "holderIdentity") + " " + text_at(spec, "renewTime") + " " +
         text_at(annotations_of(lease), kConfigurationAnnotation);
}

json patch_to_take(const json& lease, const SlotHolder& holder) {
  const std::string now = micro_time(holder.now);
  const json& before = at(lease, "spec");
  json spec = {
      {"holderIdentity", holder.node}, {"leaseDurationSeconds", kSlotLife.count()}, {"renewTime", now}};
  if (text_at(before, "holderIdentity") != holder.node) {
    const json& transitions = at(before, "leaseTransitions");
    constexpr std::int64_t kMost = 1'000'000;
    spec["acquireTime"] = now;
    spec["leaseTransitions"] =
        transitions.is_number_integer() ? std::min(transitions.get<std::int64_t>(), kMost) + 1 : 0;
  }
  json annotations = {{kConfigurationAnnotation, holder.configuration}};
  if (!holder.policy.empty()) annotations[kPolicyAnnotation] = holder.policy;
  return {{"spec", std::move(spec)}, {"metadata", {{"annotations", std::move(annotations)}}}};
}

json patch_to_give_back() {
  return {
      {"spec", {{"holderIdentity", nullptr}, {"acquireTime", nullptr}, {"renewTime", nullptr}}},
      {"metadata", {{"annotations", {{kConfigurationAnnotation, nullptr}, {kPolicyAnnotation, nullptr}}}}}};
}

json patch_to_judge(const json& lease, const std::string& node, const std::string& configuration,
                    const std::string& verdict) {
  const std::string proven = kProvenPrefix + configuration;
  const std::string failed = kFailedPrefix + configuration;
  json changes = json::object();
  const json& annotations = annotations_of(lease);
  if (verdict.empty()) {
    changes[proven] = node;
    // A failure on another node stays: only that node's own success removes it.
    if (text_at(annotations, failed.c_str()).starts_with(node + ":")) changes[failed] = nullptr;
  } else {
    changes[failed] = told(verdict, kLongestVerdict);
  }
  if (annotations.is_object()) {
    for (const auto& [prefix, ours] : {std::pair<std::string, std::string>{kProvenPrefix, proven},
                                       std::pair<std::string, std::string>{kFailedPrefix, failed}}) {
      std::size_t others = count_others(annotations, prefix, ours);
      for (const auto& [key, value] : annotations.items()) {
        if (others < kMostVerdicts) break;
        if (!key.starts_with(prefix) || key == ours) continue;
        changes[key] = nullptr;
        --others;
      }
    }
  }
  return {{"metadata", {{"annotations", std::move(changes)}}}};
}

json both(json patch, const json& other) {
  for (const auto& [key, value] : other.items()) {
    const auto found = patch.find(key);
    if (found != patch.end() && found->is_object() && value.is_object()) {
      *found = both(*found, value);
    } else {
      patch[key] = value;
    }
  }
  return patch;
}

json new_change_lease(const std::string& space, std::size_t slot, const json& patch) {
  const ObjectRef ref = change_lease(space, slot);
  json out = {
      {"apiVersion", kLeases.api_version},
      {"kind", kLeases.kind},
      {"metadata",
       {{"name", ref.name},
        {"namespace", space},
        {"labels", {{kChangeSlotLabel, std::to_string(slot)}, {"app.kubernetes.io/part-of", "ferry"}}}}}};
  out.merge_patch(patch);
  return out;
}

}  // namespace ferry
