// SPDX-License-Identifier: Apache-2.0
#include "agent/host_status.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ferry::agent {
namespace {

using nlohmann::json;

constexpr int kVersionOfFormat = 2;

constexpr std::array<std::pair<std::string_view, NodePhase>, 5> kPhases = {{{"ready", NodePhase::ready},
                                                                            {"applying", NodePhase::applying},
                                                                            {"blocked", NodePhase::blocked},
                                                                            {"failed", NodePhase::failed},
                                                                            {"idle", NodePhase::idle}}};

// The readers below throw this for a value of an unexpected form. read_host_status() catches it.
struct Unreadable {
  std::string why;
};

std::string text_at(const json& object, const char* key) {
  const auto value = object.find(key);
  return value == object.end() || value->is_null() ? std::string() : value->get<std::string>();
}

policy::Mode mode_of(const json& value) {
  const auto mode = policy::parse_mode(value.get_ref<const std::string&>());
  if (!mode) throw Unreadable{fmt::format("'{}' is no mode", value.get_ref<const std::string&>())};
  return *mode;
}

NodePhase phase_of(const json& value) {
  const auto& word = value.get_ref<const std::string&>();
  const auto* const found = std::ranges::find(kPhases, word, &std::pair<std::string_view, NodePhase>::first);
  if (found == kPhases.end()) throw Unreadable{fmt::format("'{}' is no phase", word)};
  return found->second;
}

ReportedUser holder_of(const json& value) {
  ReportedUser out{.text = value.at("name").get<std::string>(), .kind = text_at(value, "kind")};
  out.name = out.text;
  out.pod_uid = text_at(value, "pod_uid");
  if (const auto by = value.find("by_the_plugin"); by != value.end()) out.by_the_plugin = by->get<bool>();
  std::string kind = out.kind;
  std::ranges::replace(kind, '_', ' ');
  if (!kind.empty()) out.text = kind + " " + out.text;
  if (const auto pid = value.find("pid"); pid != value.end() && !pid->is_null())
    out.text += fmt::format(" (pid {})", pid->get<std::int64_t>());
  return out;
}

// A loop over an object in place of a list would visit the object's values.
const json& list_at(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_array()) throw Unreadable{fmt::format("{} is no list", key)};
  return value;
}

VgpuStatus vgpu_of(const json& value) {
  VgpuStatus out{.id = value.at("id").get<std::string>(), .type = text_at(value, "type")};
  if (const auto users = value.find("users"); users != value.end() && !users->is_null()) {
    out.users.emplace();
    for (const json& user : list_at(value, "users")) out.users->push_back(holder_of(user));
  }
  return out;
}

std::uint32_t number_of(const json& value, const std::string& key) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max())
    throw Unreadable{fmt::format("{} is no number", key)};
  return value.get<std::uint32_t>();
}

std::optional<std::uint32_t> number_at(const json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || value->is_null()) return std::nullopt;
  return number_of(*value, key);
}

// Reads an object of numbers by name.
std::map<std::string, std::uint32_t> numbers_of(const json& value, const char* key) {
  if (!value.is_object()) throw Unreadable{fmt::format("{} is no object", key)};
  std::map<std::string, std::uint32_t> out;
  for (const auto& [name, number] : value.items()) out[name] = number_of(number, name);
  return out;
}

NodeFeatures features_of(const json& value) {
  NodeFeatures out;
  out.iommu = value.at("iommu").get<std::string>();
  out.largest_group = number_at(value, "largest_group");
  out.machine = text_at(value, "machine");
  out.vgpu_types = numbers_of(value.at("vgpu_types"), "vgpu_types");
  return out;
}

AcceleratorStatus accelerator_of(const json& value) {
  AcceleratorStatus out;
  out.address = value.at("address").get<std::string>();
  out.id = text_at(value, "id");
  out.subsystem = text_at(value, "subsystem");
  out.pci_class = text_at(value, "class");
  out.model = text_at(value, "model");
  out.iommu_group = number_at(value, "iommu_group");
  out.driver = text_at(value, "driver");
  out.mode = mode_of(value.at("mode"));
  if (const json& desired = value.at("desired"); !desired.is_null()) out.desired = mode_of(desired);
  out.state = value.at("state").get<std::string>();
  out.reason = text_at(value, "reason");
  out.hint = text_at(value, "hint");
  for (const json& user : list_at(value, "users")) out.users.push_back(holder_of(user));
  if (const auto only = value.find("only_in_use"); only != value.end()) out.only_in_use = only->get<bool>();
  for (const json& vgpu : list_at(value, "vgpus")) out.vgpus.push_back(vgpu_of(vgpu));
  if (const auto more = value.find("more_vgpus"); more != value.end())
    out.more_vgpus = numbers_of(*more, "more_vgpus");
  return out;
}

HostStatus host_of(const json& file) {
  if (file.at("version") != kVersionOfFormat) throw Unreadable{"written by another version of ferry"};
  HostStatus out;
  out.phase = phase_of(file.at("phase"));
  // A person's desired.json may have no generation.
  if (const json& desired = file.at("desired"); !desired.is_null()) {
    if (const auto generation = desired.find("generation");
        generation != desired.end() && !generation->is_null()) {
      if (!generation->is_number_unsigned()) throw Unreadable{"desired.generation is no number"};
      out.desired = generation->get<std::uint64_t>();
    }
  }
  for (const json& accelerator : list_at(file, "accelerators"))
    out.accelerators.push_back(accelerator_of(accelerator));
  for (const json& device : list_at(file, "unavailable"))
    out.withdraw.push_back(device.at("id").get<std::string>());
  if (const auto error = file.find("error"); error != file.end() && !error->is_null()) {
    out.error = error->at("message").get<std::string>();
    out.hint = text_at(*error, "hint");
  }
  if (const auto features = file.find("features"); features != file.end() && !features->is_null())
    out.features = features_of(*features);
  return out;
}

}  // namespace

bool counts_as_gpu(const AcceleratorStatus& accelerator) {
  constexpr std::array<std::string_view, 3> kClasses = {"", "0300", "0302"};
  return std::ranges::find(kClasses, accelerator.pci_class) != kClasses.end();
}

Result<HostStatus> read_host_status(std::string_view text) {
  const auto broken = [](const std::string& why) {
    return fail(Errc::malformed_host, fmt::format("/{}: {}", kStatusFile, why),
                "ferry hostd writes it: is it of the same version as the agent?");
  };
  try {
    const json file = json::parse(text);
    if (!file.is_object()) return broken("no JSON object");
    return host_of(file);
  } catch (const json::exception& error) {
    return broken(error.what());
  } catch (const Unreadable& error) {
    return broken(error.why);
  }
}

}  // namespace ferry::agent
