// SPDX-License-Identifier: Apache-2.0
#include "dra/claim_files.h"

#include <algorithm>
#include <set>
#include <utility>

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
constexpr std::string_view kClaimPrefix = "gpu-ferry.io-claim_";
constexpr std::string_view kMetadataPrefix = "gpu-ferry.io_metadata_";
constexpr std::string_view kJsonSuffix = ".json";

std::string claim_cdi_name(std::string_view uid, std::string_view device) {
  return fmt::format("{}-{}", uid, device);
}

std::string metadata_cdi_name(std::string_view uid, std::string_view request) {
  return fmt::format("{}_{}", uid, request);
}

std::string cdi_text(std::string_view device_class, Json devices) {
  return json_text({{"cdiVersion", kCdiVersion},
                    {"kind", fmt::format("{}/{}", kDriver, device_class)},
                    {"devices", std::move(devices)}});
}

Json cdi_device(const CheckpointClaim& claim, const ClaimDevice& device) {
  Json nodes = Json::array();
  for (const DeviceNode& node : device.result.nodes) {
    Json& one = nodes.emplace_back(Json{{"path", node.path}});
    if (node.mode) one["fileMode"] = *node.mode;
  }
  return {{"name", claim_cdi_name(claim.uid, device.device.name)},
          {"containerEdits", {{"env", Json::array({kNoNvidiaDevices})}, {"deviceNodes", std::move(nodes)}}}};
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
  return {{"driver", kDriver},
          {"pool", device.pool},
          {"name", device.device.name},
          {"attributes", attributes_json(metadata_attributes(device))}};
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
  return fmt::format("{}{}{}", kClaimPrefix, uid, kJsonSuffix);
}

std::string claim_cdi_id(std::string_view uid, std::string_view device) {
  return fmt::format("{}/claim={}", kDriver, claim_cdi_name(uid, device));
}

std::string metadata_cdi_file(std::string_view uid, std::string_view request) {
  return fmt::format("{}{}{}", kMetadataPrefix, metadata_cdi_name(uid, request), kJsonSuffix);
}

std::string metadata_cdi_id(std::string_view uid, std::string_view request) {
  return fmt::format("{}/metadata={}", kDriver, metadata_cdi_name(uid, request));
}

std::optional<std::string> claim_of_cdi_file(std::string_view file) {
  if (const auto uid = between(file, kClaimPrefix, kJsonSuffix)) return std::string(*uid);
  const auto name = between(file, kMetadataPrefix, kJsonSuffix);
  if (!name || name->find('_') == std::string_view::npos) return std::nullopt;
  return std::string(name->substr(0, name->find('_')));
}

std::vector<std::string> requests_of(const CheckpointClaim& claim) {
  std::vector<std::string> out;
  for (const ClaimDevice& device : claim.devices) {
    const std::string_view request = main_request(device.request);
    if (std::ranges::find(out, request) == out.end()) out.emplace_back(request);
  }
  return out;
}

std::string claim_cdi_text(const CheckpointClaim& claim) {
  Json devices = Json::array();
  for (const ClaimDevice& device : claim.devices) devices.push_back(cdi_device(claim, device));
  return cdi_text("claim", std::move(devices));
}

std::string metadata_path(std::string_view uid, std::string_view request) {
  return fmt::format("{}/{}/metadata.json", uid, request);
}

std::string metadata_container_path(const CheckpointClaim& claim, std::string_view request) {
  const bool from_template = !claim.pod_claim.empty();
  return fmt::format("{}/{}/{}/{}/{}-metadata.json", kContainerFolder,
                     from_template ? "resourceclaimtemplates" : "resourceclaims",
                     from_template ? claim.pod_claim : claim.name, request, kDriver);
}

std::string metadata_text(const CheckpointClaim& claim, std::string_view request) {
  Json out = {{"apiVersion", kMetadataVersion},
              {"kind", "DeviceMetadata"},
              {"metadata",
               {{"name", claim.name}, {"namespace", claim.space}, {"uid", claim.uid}, {"generation", 1}}}};
  if (!claim.pod_claim.empty()) out["podClaimName"] = claim.pod_claim;
  Json with_devices = {{"name", request}, {"devices", Json::array()}};
  for (const ClaimDevice& device : claim.devices) {
    if (main_request(device.request) != request) continue;
    with_devices["name"] = device.request;
    with_devices["devices"].push_back(metadata_device(device));
  }
  out["requests"].push_back(std::move(with_devices));
  return json_text(out);
}

std::string metadata_cdi_text(const CheckpointClaim& claim, std::string_view request,
                              std::string_view folder) {
  const Json mount = {{"hostPath", fmt::format("{}/{}", folder, metadata_path(claim.uid, request))},
                      {"containerPath", metadata_container_path(claim, request)},
                      {"options", Json::array({"ro", "bind"})}};
  const Json device = {{"name", metadata_cdi_name(claim.uid, request)},
                       {"containerEdits", {{"mounts", Json::array({mount})}}}};
  return cdi_text("metadata", Json::array({device}));
}

std::vector<ClaimFile> claim_files(const CheckpointClaim& claim, std::string_view folder) {
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

std::vector<DeviceAnswer> answer_of(const CheckpointClaim& claim) {
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
