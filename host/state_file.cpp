// SPDX-License-Identifier: Apache-2.0
#include "host/state_file.h"

#include <limits>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json object_of(const std::map<std::string, std::uint32_t>& numbers) {
  auto out = Json::object();
  for (const auto& [name, number] : numbers) out[name] = number;
  return out;
}

Json list_of(const std::vector<StateHolder>& holders) {
  auto out = Json::array();
  for (const StateHolder& holder : holders)
    out.push_back({{"kind", holder.kind},
                   {"name", holder.name},
                   {"pid", or_null(holder.pid)},
                   {"pod_uid", text_or_null(holder.pod_uid)},
                   {"by_the_plugin", holder.by_the_plugin}});
  return out;
}

Json json_of(const AcceleratorState& gpu) {
  auto vgpus = Json::array();
  for (const StateVgpu& vgpu : gpu.vgpus)
    vgpus.push_back(
        {{"id", vgpu.id}, {"type", vgpu.type}, {"holders", vgpu.holders ? list_of(*vgpu.holders) : Json()}});
  return {{"address", gpu.address.text()},
          {"id", gpu.id},
          {"subsystem", text_or_null(gpu.subsystem)},
          {"class", gpu.pci_class},
          {"model", gpu.model},
          {"iommu_group", or_null(gpu.iommu_group)},
          {"driver", or_null(gpu.driver)},
          {"mode", text(gpu.mode)},
          {"wanted", gpu.wanted ? Json(text(*gpu.wanted)) : Json()},
          {"state", text(gpu.state)},
          {"reason", gpu.reason},
          {"hint", gpu.hint},
          {"holders", list_of(gpu.holders)},
          {"only_in_use", gpu.only_in_use},
          {"vgpus", std::move(vgpus)},
          {"more_vgpus", object_of(gpu.more_vgpus)}};
}

Json json_of(const NodeFeatures& features) {
  return {{"iommu", features.iommu},
          {"largest_group", or_null(features.largest_group)},
          {"machine", text_or_null(features.machine)},
          {"vgpu_types", object_of(features.vgpu_types)}};
}

Json json_of(const WantedMark& wanted) {
  return {
      {"generation", or_null(wanted.generation)}, {"policy", wanted.policy}, {"asked_by", wanted.asked_by}};
}

/// Reads an object of the file key by key. The first fault is kept; after it all values are empty.
class Part {
 public:
  Part(const Json& object, std::string path, std::string& fault)
      : object_(object), path_(std::move(path)), fault_(fault) {
    if (!object.is_object()) blame("", "expected an object");
  }

  const Json& at(const char* key) const {
    static const Json kNothing;
    if (!object_.is_object()) return kNothing;
    const auto found = object_.find(key);
    if (found != object_.end()) return *found;
    blame(key, "the key is missing");
    return kNothing;
  }
  std::string text_at(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) return blame(key, "expected a text"), std::string();
    return value.get<std::string>();
  }
  bool flag_at(const char* key) const {
    const Json& value = at(key);
    if (!value.is_boolean()) return blame(key, "expected true or false"), false;
    return value.get<bool>();
  }
  std::optional<std::string> text_or_null(const char* key) const {
    if (at(key).is_null()) return std::nullopt;
    return text_at(key);
  }
  template <typename Number>
  Number number_at(const char* key) const {
    const Json& value = at(key);
    if (value.is_number_unsigned() &&
        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<Number>::max()))
      return value.get<Number>();
    blame(key, "expected a number from 0 on");
    return {};
  }
  template <typename Number>
  std::optional<Number> number_or_null(const char* key) const {
    if (at(key).is_null()) return std::nullopt;
    return number_at<Number>(key);
  }
  template <typename Value>
  Value word_at(const char* key, std::optional<Value> (*parse)(std::string_view), Value otherwise) const {
    const std::string word = text_at(key);
    const auto value = parse(word);
    if (!value) blame(key, "'" + word + "' is none of its words");
    return value.value_or(otherwise);
  }
  template <typename Read>
  auto list_at(const char* key, Read read) const {
    std::vector<decltype(read(*this))> out;
    const Json& list = at(key);
    if (!list.is_array()) blame(key, "expected a list");
    if (!list.is_array()) return out;
    for (std::size_t i = 0; i < list.size() && fault_.empty(); ++i)
      out.push_back(read(Part(list[i], path_ + key + "[" + std::to_string(i) + "].", fault_)));
    return out;
  }
  /// An object that maps names to numbers.
  std::map<std::string, std::uint32_t> numbers_at(const char* key) const {
    std::map<std::string, std::uint32_t> out;
    const Part numbers = part(key);
    if (!numbers.object_.is_object()) return out;
    for (const auto& [name, value] : numbers.object_.items())
      out[name] = numbers.number_at<std::uint32_t>(name.c_str());
    return out;
  }
  /// For keys that older files lack.
  bool has(const char* key) const { return object_.is_object() && object_.contains(key); }
  Part part(const char* key) const { return {at(key), path_ + key + ".", fault_}; }
  void blame(const std::string& key, const std::string& what) const {
    if (fault_.empty()) fault_ = path_ + key + ": " + what;
  }

 private:
  const Json& object_;
  std::string path_;
  std::string& fault_;
};

StateHolder read_holder(const Part& part) {
  StateHolder out = {
      .kind = part.text_at("kind"), .name = part.text_at("name"), .pid = part.number_or_null<int>("pid")};
  if (part.has("pod_uid")) out.pod_uid = part.text_or_null("pod_uid").value_or("");
  if (part.has("by_the_plugin")) out.by_the_plugin = part.flag_at("by_the_plugin");
  return out;
}

StateVgpu read_vgpu(const Part& part) {
  StateVgpu out{.id = part.text_at("id"), .type = part.text_at("type")};
  if (part.has("holders") && !part.at("holders").is_null())
    out.holders = part.list_at("holders", read_holder);
  return out;
}

Withdrawal read_withdrawal(const Part& part) {
  return {.id = part.text_at("id"), .reason = part.text_at("reason")};
}

AcceleratorState read_accelerator(const Part& part) {
  AcceleratorState out;
  const auto address = PciAddress::parse(part.text_at("address"));
  if (!address) part.blame("address", address.error().message);
  out.address = address.value_or(PciAddress());
  out.id = part.text_at("id");
  if (part.has("subsystem")) out.subsystem = part.text_or_null("subsystem").value_or("");
  if (part.has("class")) out.pci_class = part.text_at("class");
  out.model = part.text_at("model");
  out.iommu_group = part.number_or_null<std::uint32_t>("iommu_group");
  out.driver = part.text_or_null("driver");
  out.mode = part.word_at("mode", parse_mode, Mode::host);
  if (!part.at("wanted").is_null()) out.wanted = part.word_at("wanted", parse_mode, Mode::host);
  out.state = part.word_at("state", parse_standing, Standing::left_alone);
  out.reason = part.text_at("reason");
  out.hint = part.text_at("hint");
  out.holders = part.list_at("holders", read_holder);
  if (part.has("only_in_use")) out.only_in_use = part.flag_at("only_in_use");
  out.vgpus = part.list_at("vgpus", read_vgpu);
  if (part.has("more_vgpus")) out.more_vgpus = part.numbers_at("more_vgpus");
  return out;
}

NodeFeatures read_features(const Part& part) {
  return {.iommu = part.text_at("iommu"),
          .largest_group = part.number_or_null<std::uint32_t>("largest_group"),
          .machine = part.text_or_null("machine").value_or(""),
          .vgpu_types = part.numbers_at("vgpu_types")};
}

NodeState read_state(const Part& part) {
  NodeState out;
  if (part.number_at<int>("version") != 1) part.blame("version", "expected 1");
  out.generation = part.number_at<std::uint64_t>("generation");
  out.pid = part.number_at<int>("pid");
  out.boot_id = part.text_at("boot_id");
  if (!part.at("wanted").is_null()) {
    const Part wanted = part.part("wanted");
    out.wanted = WantedMark{.generation = wanted.number_or_null<std::uint64_t>("generation"),
                            .policy = wanted.text_at("policy"),
                            .asked_by = wanted.text_at("asked_by")};
  }
  out.phase = part.word_at("phase", parse_node_phase, NodePhase::failed);
  out.accelerators = part.list_at("accelerators", read_accelerator);
  out.withdraw = part.list_at("withdraw", read_withdrawal);
  if (!part.at("error").is_null()) {
    const Part error = part.part("error");
    out.error = StateError{.message = error.text_at("message"), .hint = error.text_at("hint")};
  }
  if (part.has("features") && !part.at("features").is_null())
    out.features = read_features(part.part("features"));
  if (part.has("stand_back")) out.stand_back = part.text_or_null("stand_back").value_or("");
  return out;
}

}  // namespace

std::string state_file_text(const NodeState& state) {
  auto accelerators = Json::array();
  for (const AcceleratorState& gpu : state.accelerators) accelerators.push_back(json_of(gpu));
  auto withdraw = Json::array();
  for (const Withdrawal& device : state.withdraw)
    withdraw.push_back({{"id", device.id}, {"reason", device.reason}});
  Json error;
  if (state.error) error = {{"message", state.error->message}, {"hint", state.error->hint}};
  const Json file = {{"version", 1},
                     {"generation", state.generation},
                     {"pid", state.pid},
                     {"boot_id", state.boot_id},
                     {"wanted", state.wanted ? json_of(*state.wanted) : Json()},
                     {"phase", text(state.phase)},
                     {"accelerators", std::move(accelerators)},
                     {"withdraw", std::move(withdraw)},
                     {"error", std::move(error)},
                     {"features", state.features ? json_of(*state.features) : Json()},
                     {"stand_back", text_or_null(state.stand_back)}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<NodeState> read_state_file(std::string_view text) {
  const auto file = Json::parse(text, nullptr, false);
  std::string fault;
  if (file.is_discarded()) {
    fault = "not JSON";
  } else {
    NodeState out = read_state(Part(file, "", fault));
    if (fault.empty()) return out;
  }
  return fail(Errc::malformed_host, "state file: " + fault);
}

}  // namespace ferry
