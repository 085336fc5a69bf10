// SPDX-License-Identifier: Apache-2.0
#include "host/status_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

namespace ferry::host {
namespace {

constexpr std::array<std::pair<std::string_view, NodePhase>, 5> kPhases = {{{"idle", NodePhase::idle},
                                                                            {"ready", NodePhase::ready},
                                                                            {"applying", NodePhase::applying},
                                                                            {"blocked", NodePhase::blocked},
                                                                            {"failed", NodePhase::failed}}};

constexpr std::array<std::pair<std::string_view, GpuState>, 5> kGpuStates = {
    {{"ready", GpuState::ready},
     {"blocked", GpuState::blocked},
     {"failed", GpuState::failed},
     {"pending", GpuState::pending},
     {"unmanaged", GpuState::unmanaged}}};

template <typename Table, typename Value>
std::string_view word_for(const Table& table, Value value) {
  return std::ranges::find(table, value, &Table::value_type::second)->first;
}

template <typename Value, typename Table>
std::optional<Value> value_for(const Table& table, std::string_view word) {
  const auto* const found = std::ranges::find(table, word, &Table::value_type::first);
  if (found == table.end()) return std::nullopt;
  return found->second;
}

}  // namespace

std::string_view text(NodePhase phase) {
  return word_for(kPhases, phase);
}
std::optional<NodePhase> parse_node_phase(std::string_view word) {
  return value_for<NodePhase>(kPhases, word);
}
std::string_view text(GpuState condition) {
  return word_for(kGpuStates, condition);
}
std::optional<GpuState> parse_gpu_state(std::string_view word) {
  return value_for<GpuState>(kGpuStates, word);
}

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

Json list_of(const std::vector<ReportedUser>& users) {
  auto out = Json::array();
  for (const ReportedUser& user : users)
    out.push_back({{"kind", user.kind},
                   {"name", user.name},
                   {"pid", or_null(user.pid)},
                   {"pod_uid", text_or_null(user.pod_uid)},
                   {"by_the_plugin", user.by_the_plugin}});
  return out;
}

Json json_of(const AcceleratorStatus& gpu) {
  auto vgpus = Json::array();
  for (const VgpuStatus& vgpu : gpu.vgpus)
    vgpus.push_back(
        {{"id", vgpu.id}, {"type", vgpu.type}, {"users", vgpu.users ? list_of(*vgpu.users) : Json()}});
  return {{"address", gpu.address.text()},
          {"id", gpu.id},
          {"subsystem", text_or_null(gpu.subsystem)},
          {"class", gpu.pci_class},
          {"model", gpu.model},
          {"iommu_group", or_null(gpu.iommu_group)},
          {"driver", or_null(gpu.driver)},
          {"mode", text(gpu.mode)},
          {"desired", gpu.desired ? Json(text(*gpu.desired)) : Json()},
          {"state", text(gpu.state)},
          {"reason", gpu.reason},
          {"hint", gpu.hint},
          {"users", list_of(gpu.users)},
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

Json json_of(const DesiredMark& desired) {
  return {
      {"generation", or_null(desired.generation)}, {"policy", desired.policy}, {"source", desired.source}};
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

ReportedUser read_user(const Part& part) {
  ReportedUser out = {
      .kind = part.text_at("kind"), .name = part.text_at("name"), .pid = part.number_or_null<int>("pid")};
  if (part.has("pod_uid")) out.pod_uid = part.text_or_null("pod_uid").value_or("");
  if (part.has("by_the_plugin")) out.by_the_plugin = part.flag_at("by_the_plugin");
  return out;
}

VgpuStatus read_vgpu(const Part& part) {
  VgpuStatus out{.id = part.text_at("id"), .type = part.text_at("type")};
  if (part.has("users") && !part.at("users").is_null()) out.users = part.list_at("users", read_user);
  return out;
}

Withdrawal read_withdrawal(const Part& part) {
  return {.id = part.text_at("id"), .reason = part.text_at("reason")};
}

AcceleratorStatus read_accelerator(const Part& part) {
  AcceleratorStatus out;
  const auto address = vfio::PciAddress::parse(part.text_at("address"));
  if (!address) part.blame("address", address.error().message);
  out.address = address.value_or(vfio::PciAddress());
  out.id = part.text_at("id");
  if (part.has("subsystem")) out.subsystem = part.text_or_null("subsystem").value_or("");
  if (part.has("class")) out.pci_class = part.text_at("class");
  out.model = part.text_at("model");
  out.iommu_group = part.number_or_null<std::uint32_t>("iommu_group");
  out.driver = part.text_or_null("driver");
  out.mode = part.word_at("mode", policy::parse_mode, policy::Mode::host);
  if (!part.at("desired").is_null())
    out.desired = part.word_at("desired", policy::parse_mode, policy::Mode::host);
  out.state = part.word_at("state", parse_gpu_state, GpuState::unmanaged);
  out.reason = part.text_at("reason");
  out.hint = part.text_at("hint");
  out.users = part.list_at("users", read_user);
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

HostStatus read_state(const Part& part) {
  HostStatus out;
  if (part.number_at<int>("version") != 2) part.blame("version", "expected 2");
  out.generation = part.number_at<std::uint64_t>("generation");
  out.pid = part.number_at<int>("pid");
  out.boot_id = part.text_at("boot_id");
  if (!part.at("desired").is_null()) {
    const Part desired = part.part("desired");
    out.desired = DesiredMark{.generation = desired.number_or_null<std::uint64_t>("generation"),
                              .policy = desired.text_at("policy"),
                              .source = desired.text_at("source")};
  }
  out.phase = part.word_at("phase", parse_node_phase, NodePhase::failed);
  out.accelerators = part.list_at("accelerators", read_accelerator);
  out.withdraw = part.list_at("unavailable", read_withdrawal);
  if (!part.at("error").is_null()) {
    const Part error = part.part("error");
    out.error = StatusError{.message = error.text_at("message"), .hint = error.text_at("hint")};
  }
  if (part.has("features") && !part.at("features").is_null())
    out.features = read_features(part.part("features"));
  if (part.has("standby")) out.standby = part.text_or_null("standby").value_or("");
  return out;
}

}  // namespace

std::string status_file_text(const HostStatus& state) {
  auto accelerators = Json::array();
  for (const AcceleratorStatus& gpu : state.accelerators) accelerators.push_back(json_of(gpu));
  auto withdraw = Json::array();
  for (const Withdrawal& device : state.withdraw)
    withdraw.push_back({{"id", device.id}, {"reason", device.reason}});
  Json error;
  if (state.error) error = {{"message", state.error->message}, {"hint", state.error->hint}};
  const Json file = {{"version", 2},
                     {"generation", state.generation},
                     {"pid", state.pid},
                     {"boot_id", state.boot_id},
                     {"desired", state.desired ? json_of(*state.desired) : Json()},
                     {"phase", text(state.phase)},
                     {"accelerators", std::move(accelerators)},
                     {"unavailable", std::move(withdraw)},
                     {"error", std::move(error)},
                     {"features", state.features ? json_of(*state.features) : Json()},
                     {"standby", text_or_null(state.standby)}};
  return file.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<HostStatus> read_status_file(std::string_view text) {
  const auto file = Json::parse(text, nullptr, false);
  std::string fault;
  if (file.is_discarded()) {
    fault = "not JSON";
  } else {
    HostStatus out = read_state(Part(file, "", fault));
    if (fault.empty()) return out;
  }
  return fail(Errc::malformed_host, "status.json: " + fault);
}

}  // namespace ferry::host
