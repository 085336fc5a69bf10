// SPDX-License-Identifier: Apache-2.0
#include "dra/claim_files.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/json.h"
#include "dra/claim.h"
#include "dra/names.h"

namespace ferry::dra {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCdiVersion = "0.5.0";
constexpr const char* kMetadataVersion = "metadata.resource.k8s.io/v1alpha1";
constexpr const char* kNoNvidiaDevices = "NVIDIA_VISIBLE_DEVICES=void";
constexpr const char* kContainerFolder = "/var/run/kubernetes.io/dra-device-attributes";
constexpr const char* kBusId = "resource.kubernetes.io/pciBusID";
constexpr const char* kMdevUuid = "mdevUUID";
constexpr std::string_view kJsonSuffix = ".json";

std::string claim_cdi_prefix() {
  return fmt::format("{}-claim_", kDriver);
}

std::string metadata_cdi_prefix() {
  return fmt::format("{}_metadata_", kDriver);
}

std::string claim_cdi_name(std::string_view uid, std::string_view device) {
  return fmt::format("{}-{}", uid, device);
}

std::string metadata_cdi_name(std::string_view uid, std::string_view request) {
  return fmt::format("{}_{}", uid, request);
}

/// A CDI file of this driver without its devices.
Json cdi_file(std::string_view device_class) {
  Json out = Json::object();
  out["cdiVersion"] = kCdiVersion;
  out["kind"] = fmt::format("{}/{}", kDriver, device_class);
  out["devices"] = Json::array();
  return out;
}

Json cdi_device(const ClaimRecord& claim, const ClaimDevice& device) {
  Json edits = Json::object();
  edits["env"] = Json::array();
  edits["env"].push_back(kNoNvidiaDevices);
  edits["deviceNodes"] = Json::array();
  for (const DeviceNode& node : device.result.nodes) {
    Json one = Json::object();
    one["path"] = node.path;
    if (node.mode) one["fileMode"] = *node.mode;
    edits["deviceNodes"].push_back(std::move(one));
  }
  Json out = Json::object();
  out["name"] = claim_cdi_name(claim.uid, device.device.name);
  out["containerEdits"] = std::move(edits);
  return out;
}

Attributes metadata_attributes(const ClaimDevice& device) {
  Attributes out = device.device.attributes;
  out.erase(kBusId);
  out.erase(kMdevUuid);
  if (!device.result.mdev_uuid.empty())
    out.insert_or_assign(kMdevUuid, Attribute(device.result.mdev_uuid));
  else if (device.result.function)
    out.insert_or_assign(kBusId, Attribute(device.result.function->text()));
  return out;
}

Json metadata_device(const ClaimDevice& device) {
  Json attributes = Json::object();
  for (const auto& [name, value] : metadata_attributes(device)) {
    if (const auto* const number = std::get_if<std::int64_t>(&value))
      attributes[name]["int"] = *number;
    else
      attributes[name]["string"] = std::get<std::string>(value);
  }
  Json out = Json::object();
  out["driver"] = kDriver;
  out["pool"] = device.pool;
  out["name"] = device.device.name;
  out["attributes"] = std::move(attributes);
  return out;
}

/// The rest of a text between a prefix and a suffix; absent: it has not both.
std::optional<std::string_view> between(std::string_view text, std::string_view prefix,
                                        std::string_view suffix) {
  if (text.size() < prefix.size() + suffix.size() || !text.starts_with(prefix) || !text.ends_with(suffix))
    return std::nullopt;
  return text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
}

}  // namespace

std::string claim_cdi_file(std::string_view uid) {
  return fmt::format("{}{}{}", claim_cdi_prefix(), uid, kJsonSuffix);
}

std::string claim_cdi_id(std::string_view uid, std::string_view device) {
  return fmt::format("{}/claim={}", kDriver, claim_cdi_name(uid, device));
}

std::string metadata_cdi_file(std::string_view uid, std::string_view request) {
  return fmt::format("{}{}{}", metadata_cdi_prefix(), metadata_cdi_name(uid, request), kJsonSuffix);
}

std::string metadata_cdi_id(std::string_view uid, std::string_view request) {
  return fmt::format("{}/metadata={}", kDriver, metadata_cdi_name(uid, request));
}

std::optional<std::string> claim_of_cdi_file(std::string_view file) {
  if (const auto uid = between(file, claim_cdi_prefix(), kJsonSuffix)) return std::string(*uid);
  const auto name = between(file, metadata_cdi_prefix(), kJsonSuffix);
  if (!name || name->find('_') == std::string_view::npos) return std::nullopt;
  return std::string(name->substr(0, name->find('_')));
}

std::vector<std::string> requests_of(const ClaimRecord& claim) {
  std::vector<std::string> out;
  for (const ClaimDevice& device : claim.devices) {
    const std::string_view request = main_request(device.request);
    if (std::ranges::find(out, request) == out.end()) out.emplace_back(request);
  }
  return out;
}

std::string claim_cdi_text(const ClaimRecord& claim) {
  Json out = cdi_file("claim");
  for (const ClaimDevice& device : claim.devices) out["devices"].push_back(cdi_device(claim, device));
  return json_text(out);
}

std::string metadata_path(std::string_view uid, std::string_view request) {
  return fmt::format("{}/{}/metadata.json", uid, request);
}

std::string metadata_container_path(const ClaimRecord& claim, std::string_view request) {
  const bool from_template = !claim.pod_claim.empty();
  return fmt::format("{}/{}/{}/{}/{}-metadata.json", kContainerFolder,
                     from_template ? "resourceclaimtemplates" : "resourceclaims",
                     from_template ? claim.pod_claim : claim.name, request, kDriver);
}

std::string metadata_text(const ClaimRecord& claim, std::string_view request) {
  Json out = Json::object();
  out["apiVersion"] = kMetadataVersion;
  out["kind"] = "DeviceMetadata";
  out["metadata"]["name"] = claim.name;
  out["metadata"]["namespace"] = claim.space;
  out["metadata"]["uid"] = claim.uid;
  out["metadata"]["generation"] = 1;
  if (!claim.pod_claim.empty()) out["podClaimName"] = claim.pod_claim;
  Json with_devices = Json::object();
  with_devices["name"] = std::string(request);
  with_devices["devices"] = Json::array();
  for (const ClaimDevice& device : claim.devices) {
    if (main_request(device.request) != request) continue;
    with_devices["name"] = device.request;
    with_devices["devices"].push_back(metadata_device(device));
  }
  out["requests"] = Json::array();
  out["requests"].push_back(std::move(with_devices));
  return json_text(out);
}

std::string metadata_cdi_text(const ClaimRecord& claim, std::string_view request, std::string_view folder) {
  Json mount = Json::object();
  mount["hostPath"] = fmt::format("{}/{}", folder, metadata_path(claim.uid, request));
  mount["containerPath"] = metadata_container_path(claim, request);
  mount["options"] = Json::array();
  mount["options"].push_back("ro");
  mount["options"].push_back("bind");
  Json device = Json::object();
  device["name"] = metadata_cdi_name(claim.uid, request);
  device["containerEdits"]["mounts"] = Json::array();
  device["containerEdits"]["mounts"].push_back(std::move(mount));
  Json out = cdi_file("metadata");
  out["devices"].push_back(std::move(device));
  return json_text(out);
}

std::vector<ClaimFile> claim_files(const ClaimRecord& claim, std::string_view folder) {
  const std::vector<std::string> requests = requests_of(claim);
  std::vector<ClaimFile> out;
  for (const std::string& request : requests)
    out.push_back({.folder = ClaimFile::Folder::metadata,
                   .path = metadata_path(claim.uid, request),
                   .text = metadata_text(claim, request)});
  for (const std::string& request : requests)
    out.push_back({.folder = ClaimFile::Folder::cdi,
                   .path = metadata_cdi_file(claim.uid, request),
                   .text = metadata_cdi_text(claim, request, folder)});
  out.push_back(
      {.folder = ClaimFile::Folder::cdi, .path = claim_cdi_file(claim.uid), .text = claim_cdi_text(claim)});
  return out;
}

std::vector<DeviceAnswer> answer_of(const ClaimRecord& claim) {
  std::set<std::string> requests;
  std::vector<DeviceAnswer> out;
  for (const ClaimDevice& device : claim.devices) {
    const std::string request(main_request(device.request));
    DeviceAnswer answer{.request = request,
                        .pool = device.pool,
                        .device = device.device.name,
                        .cdi_ids = {claim_cdi_id(claim.uid, device.device.name)}};
    if (requests.insert(request).second) answer.cdi_ids.push_back(metadata_cdi_id(claim.uid, request));
    out.push_back(std::move(answer));
  }
  return out;
}

}  // namespace ferry::dra
