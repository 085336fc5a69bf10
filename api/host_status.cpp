// SPDX-License-Identifier: Apache-2.0
#include "api/host_status.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "api/files.h"
#include "common/text/json.h"

namespace ferry::api {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHint = "ferry hostd writes it: is it of the same version? A restart writes it anew";

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
                   {"pod_uid", or_null(user.pod_uid)},
                   {"by_the_plugin", user.by_the_plugin}});
  return out;
}

Json json_of(const ReportedFinding& finding) {
  return {{"rule", finding.rule},     {"about", finding.about.text()}, {"answer", vfio::text(finding.answer)},
          {"blocks", finding.blocks}, {"text", finding.text},          {"advice", finding.advice}};
}

Json json_of(const AcceleratorStatus& gpu) {
  auto findings = Json::array();
  for (const ReportedFinding& finding : gpu.findings.value_or(std::vector<ReportedFinding>{}))
    findings.push_back(json_of(finding));
  auto vgpus = Json::array();
  for (const VgpuStatus& vgpu : gpu.vgpus)
    vgpus.push_back(
        {{"id", vgpu.id}, {"type", vgpu.type}, {"users", vgpu.users ? list_of(*vgpu.users) : Json()}});
  return {{"address", gpu.address.text()},
          {"id", gpu.id},
          {"subsystem", or_null(gpu.subsystem)},
          {"class", gpu.pci_class},
          {"model", gpu.model},
          {"iommu_group", or_null(gpu.iommu_group)},
          {"driver", or_null(gpu.driver)},
          {"mode", text(gpu.mode)},
          {"desired", gpu.desired ? Json(text(*gpu.desired)) : Json()},
          {"allocation", text(gpu.allocation)},
          {"state", text(gpu.state)},
          {"reason", gpu.reason},
          {"hint", gpu.hint},
          {"users", list_of(gpu.users)},
          {"only_in_use", gpu.only_in_use},
          {"findings", gpu.findings ? std::move(findings) : Json()},
          {"vgpus", std::move(vgpus)},
          {"more_vgpus", object_of(gpu.more_vgpus)}};
}

Json json_of(const NodeFeatures& features) {
  return {{"iommu", features.iommu},
          {"largest_group", or_null(features.largest_group)},
          {"machine", or_null(features.machine)},
          {"vgpu_types", object_of(features.vgpu_types)}};
}

Json json_of(const DesiredMark& desired) {
  return {
      {"generation", or_null(desired.generation)}, {"policy", desired.policy}, {"source", desired.source}};
}

ReportedUser read_user(const JsonObject& user) {
  return {.kind = user.text_or_none("kind"),
          .name = user.text("name"),
          .pid = user.number_or_none<int>("pid"),
          .pod_uid = user.text_or_none("pod_uid"),
          .by_the_plugin = user.flag_or("by_the_plugin", false)};
}

vfio::PciAddress read_address(const JsonObject& object, const char* key) {
  const auto address = vfio::PciAddress::parse(object.text(key));
  if (!address) object.blame(key, address.error().message);
  return address.value_or(vfio::PciAddress());
}

ReportedFinding read_finding(const JsonObject& finding) {
  return {.rule = finding.text("rule"),
          .about = read_address(finding, "about"),
          .answer = finding.text("answer") == vfio::text(vfio::Answer::yes) ? vfio::Answer::yes
                                                                            : vfio::Answer::not_looked,
          .blocks = finding.texts_or_none("blocks"),
          .text = finding.text_or_none("text"),
          .advice = finding.text_or_none("advice")};
}

UnfitDevice read_unfit(const JsonObject& device) {
  return {.id = device.text("id"), .driver = device.text_or_none("driver"), .reason = device.text("reason")};
}

VgpuStatus read_vgpu(const JsonObject& vgpu) {
  return {.id = vgpu.text("id"),
          .type = vgpu.text_or_none("type"),
          .users = vgpu.list_or_none("users", read_user)};
}

UnavailableDevice read_unavailable_device(const JsonObject& device) {
  return {.id = device.text("id"), .reason = device.text_or_none("reason")};
}

/// The allocation. A hostd from before DRA wrote no such key.
Allocation read_allocation(const JsonObject& gpu) {
  if (gpu.text_or_none("allocation").empty()) return Allocation::device_plugin;
  return gpu.word("allocation", parse_allocation, Allocation::device_plugin);
}

AcceleratorStatus read_accelerator(const JsonObject& gpu) {
  AcceleratorStatus out{.address = read_address(gpu, "address"),
                        .id = gpu.text_or_none("id"),
                        .subsystem = gpu.text_or_none("subsystem"),
                        .pci_class = gpu.text_or_none("class"),
                        .model = gpu.text_or_none("model"),
                        .iommu_group = gpu.number_or_none<std::uint32_t>("iommu_group"),
                        .driver = {},
                        .mode = gpu.word("mode", parse_mode, Mode::host),
                        .desired = gpu.word_or_null("desired", parse_mode, Mode::host),
                        .allocation = read_allocation(gpu),
                        .state = gpu.word("state", parse_gpu_state, GpuState::unmanaged),
                        .reason = gpu.text_or_none("reason"),
                        .hint = gpu.text_or_none("hint"),
                        .users = gpu.list("users", read_user),
                        .only_in_use = gpu.flag_or("only_in_use", false),
                        .findings = gpu.list_or_none("findings", read_finding),
                        .vgpus = gpu.list("vgpus", read_vgpu),
                        .more_vgpus = gpu.numbers_or_none("more_vgpus")};
  if (auto driver = gpu.text_or_none("driver"); !driver.empty()) out.driver = std::move(driver);
  return out;
}

NodeFeatures read_features(const JsonObject& features) {
  return {.iommu = features.text("iommu"),
          .largest_group = features.number_or_none<std::uint32_t>("largest_group"),
          .machine = features.text_or_none("machine"),
          .vgpu_types = features.numbers_or_none("vgpu_types")};
}

DesiredMark read_desired(const JsonObject& desired) {
  return {.generation = desired.generation_or_none("generation"),
          .policy = desired.text_or_none("policy"),
          .source = desired.text_or_none("source")};
}

StatusError read_error(const JsonObject& error) {
  return {.message = error.text("message"), .hint = error.text_or_none("hint")};
}

PluginOrders read_orders(const JsonObject& file) {
  file.expect_version(kStatusVersion);
  return {.generation = file.generation_or_none("generation").value_or(0),
          .unavailable = file.list("unavailable", read_unavailable_device),
          .unfit = file.list_or_none("unfit", read_unfit).value_or(std::vector<UnfitDevice>{}),
          .standby = file.text_or_none("standby")};
}

PluginOrders read_orders_for_plugin(const JsonObject& file) {
  file.expect_key("generation");  // the plugin answers with it
  return read_orders(file);
}

HostStatus read_whole(const JsonObject& file) {
  PluginOrders orders = read_orders(file);
  HostStatus out;
  out.generation = orders.generation;
  out.unavailable = std::move(orders.unavailable);
  out.standby = std::move(orders.standby);
  out.pid = file.number_or_none<int>("pid").value_or(0);
  out.boot_id = file.text_or_none("boot_id");
  file.expect_key("desired");
  out.desired = file.object_or_none("desired", read_desired);
  out.phase = file.word("phase", parse_node_phase, NodePhase::failed);
  out.accelerators = file.list("accelerators", read_accelerator);
  out.error = file.object_or_none("error", read_error);
  out.features = file.object_or_none("features", read_features);
  return out;
}

}  // namespace

std::string ReportedUser::text() const {
  std::string out = kind;
  std::ranges::replace(out, '_', ' ');
  if (!out.empty()) out += ' ';
  out += name;
  if (pid) out += " (pid " + std::to_string(*pid) + ")";
  return out;
}

bool AcceleratorStatus::counts_as_gpu() const {
  constexpr std::array<std::string_view, 3> kClasses = {"", "0300", "0302"};
  return std::ranges::find(kClasses, pci_class) != kClasses.end();
}

ReportedFinding reported(const vfio::Finding& finding) {
  ReportedFinding out{.rule = std::string(vfio::rule(finding.rule).name),
                      .about = finding.about,
                      .answer = finding.answer,
                      .text = finding.text,
                      .advice = finding.advice};
  for (const vfio::Blocks act : vfio::all_blocks())
    if (finding.blocks(act)) out.blocks.emplace_back(vfio::text(act));
  return out;
}

std::vector<UnfitDevice> unfit_devices(const HostStatus& status) {
  std::vector<UnfitDevice> out;
  for (const AcceleratorStatus& gpu : status.accelerators) {
    for (const ReportedFinding& finding : gpu.findings.value_or(std::vector<ReportedFinding>{})) {
      if (finding.answer != vfio::Answer::yes || !finding.has(vfio::text(vfio::Blocks::advertise))) continue;
      out.push_back({.id = gpu.address.text(), .driver = gpu.driver.value_or(""), .reason = finding.text});
      break;  // the gravest comes first
    }
  }
  return out;
}

std::string host_status_text(const HostStatus& status) {
  auto accelerators = Json::array();
  for (const AcceleratorStatus& gpu : status.accelerators) accelerators.push_back(json_of(gpu));
  auto unavailable = Json::array();
  for (const UnavailableDevice& device : status.unavailable)
    unavailable.push_back({{"id", device.id}, {"reason", device.reason}});
  auto unfit = Json::array();
  for (const UnfitDevice& device : unfit_devices(status))
    unfit.push_back({{"id", device.id}, {"driver", device.driver}, {"reason", device.reason}});
  Json error;
  if (status.error) error = {{"message", status.error->message}, {"hint", status.error->hint}};
  return json_text({{"version", kStatusVersion},
                    {"generation", status.generation},
                    {"pid", status.pid},
                    {"boot_id", status.boot_id},
                    {"desired", status.desired ? json_of(*status.desired) : Json()},
                    {"phase", text(status.phase)},
                    {"accelerators", std::move(accelerators)},
                    {"unavailable", std::move(unavailable)},
                    {"unfit", std::move(unfit)},
                    {"error", std::move(error)},
                    {"features", status.features ? json_of(*status.features) : Json()},
                    {"standby", or_null(status.standby)}});
}

Result<HostStatus> read_host_status(std::string_view text) {
  return read_json(text, kStatusFile, kHint, read_whole);
}

Result<PluginOrders> read_plugin_orders(std::string_view text) {
  return read_json(text, kStatusFile, kHint, read_orders_for_plugin);
}

}  // namespace ferry::api
