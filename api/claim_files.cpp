// SPDX-License-Identifier: Apache-2.0
#include "api/claim_files.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/kubevirt_rules.h"
#include "common/text/json.h"

namespace ferry::api {
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

/// The name of a device or of a request's metadata among those of all claims.
std::string cdi_name(std::string_view uid, std::string_view part) {
  return fmt::format("{}_{}", uid, part);
}

std::string cdi_text(std::string_view device_class, Json devices) {
  return json_text({{"cdiVersion", kCdiVersion},
                    {"kind", fmt::format("{}/{}", kDraDriver, device_class)},
                    {"devices", std::move(devices)}});
}

Json attributes_json(Attributes attributes, const PreparedDevice& device) {
  attributes.erase(kBusId);
  attributes.erase(kMdevUuid);
  if (!device.mdev_uuid.empty())
    attributes.insert_or_assign(kMdevUuid, Attribute(device.mdev_uuid));
  else if (device.function)
    attributes.insert_or_assign(kBusId, Attribute(device.function->text()));
  Json out = Json::object();
  for (const auto& [name, value] : attributes)
    std::visit(
        [&, &key = name](const auto& one) {
          out[key][std::is_integral_v<std::decay_t<decltype(one)>> ? "int" : "string"] = one;
        },
        value);
  return out;
}

/// The variables by which KubeVirt finds the devices of a request for an extended resource. They stand on the
/// request, since a container that has several devices gets the variable of the last one alone.
Json variables_of(const ClaimRequest& claim, std::span<const PreparedDevice> devices,
                  std::string_view request) {
  std::vector<std::string> resources;
  std::vector<std::string> functions;
  std::vector<std::string> uuids;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (main_request(claim.devices.at(i).request) != request) continue;
    resources = claim.devices[i].resources;
    if (const auto& function = devices[i].function)
      functions.push_back(function->text());
    else
      uuids.push_back(devices[i].mdev_uuid);
  }
  Json out = Json::array();
  for (const std::string& resource : resources)
    for (const auto& [prefix, ids] : {std::pair(kPciResource, functions), {kMdevResource, uuids}})
      if (!ids.empty())
        out.push_back(fmt::format("{}={}", resource_variable(prefix, resource), fmt::join(ids, ",")));
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

std::string_view main_request(std::string_view request) {
  return request.substr(0, request.find('/'));
}

std::string claim_cdi_file(std::string_view uid) {
  return fmt::format("{}{}{}", kClaimPrefix, uid, kJsonSuffix);
}

std::string claim_cdi_id(std::string_view uid, std::string_view device) {
  return fmt::format("{}/claim={}", kDraDriver, cdi_name(uid, device));
}

std::string metadata_cdi_file(std::string_view uid, std::string_view request) {
  return std::string(kMetadataPrefix) + metadata_file(uid, request);
}

std::string metadata_cdi_id(std::string_view uid, std::string_view request) {
  return fmt::format("{}/metadata={}", kDraDriver, cdi_name(uid, request));
}

std::optional<std::string> claim_of_cdi_file(std::string_view file) {
  if (const auto uid = between(file, kClaimPrefix, kJsonSuffix)) return std::string(*uid);
  if (!file.starts_with(kMetadataPrefix)) return std::nullopt;
  return claim_of_metadata_file(file.substr(kMetadataPrefix.size()));
}

std::string metadata_file(std::string_view uid, std::string_view request) {
  return cdi_name(uid, request) + std::string(kJsonSuffix);
}

std::optional<std::string> claim_of_metadata_file(std::string_view file) {
  const auto name = between(file, "", kJsonSuffix);
  if (!name || name->find('_') == std::string_view::npos) return std::nullopt;
  return std::string(name->substr(0, name->find('_')));
}

std::string claim_cdi_text(const ClaimRequest& claim, std::span<const PreparedDevice> devices) {
  Json out = Json::array();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    Json nodes = Json::array();
    for (const DeviceNode& node : devices[i].nodes) {
      Json& one = nodes.emplace_back(Json{{"path", node.path}});
      if (node.mode) one["fileMode"] = *node.mode;
    }
    const Json edits = {{"env", Json::array({kNoNvidiaDevices})}, {"deviceNodes", std::move(nodes)}};
    out.push_back({{"name", cdi_name(claim.claim, claim.devices.at(i).name)}, {"containerEdits", edits}});
  }
  return cdi_text("claim", std::move(out));
}

std::string metadata_container_path(const ClaimRequest& claim, std::string_view request) {
  const bool from_template = !claim.pod_claim.empty();
  return fmt::format("{}/{}/{}/{}/{}-metadata.json", kContainerFolder,
                     from_template ? "resourceclaimtemplates" : "resourceclaims",
                     from_template ? claim.pod_claim : claim.name, request, kDraDriver);
}

std::string metadata_text(const ClaimRequest& claim, std::span<const PreparedDevice> devices,
                          std::string_view request) {
  Json out = {{"apiVersion", kMetadataVersion},
              {"kind", "DeviceMetadata"},
              {"metadata",
               {{"name", claim.name}, {"namespace", claim.space}, {"uid", claim.claim}, {"generation", 1}}}};
  if (!claim.pod_claim.empty()) out["podClaimName"] = claim.pod_claim;
  Json with_devices = {{"name", request}, {"devices", Json::array()}};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const DeviceOfPod& published = claim.devices.at(i);
    if (main_request(published.request) != request) continue;
    with_devices["name"] = published.request;
    with_devices["devices"].push_back({{"driver", kDraDriver},
                                       {"pool", published.pool},
                                       {"name", published.name},
                                       {"attributes", attributes_json(published.attributes, devices[i])}});
  }
  out["requests"].push_back(std::move(with_devices));
  return json_text(out);
}

std::string metadata_cdi_text(const ClaimRequest& claim, std::span<const PreparedDevice> devices,
                              std::string_view request, std::string_view folder) {
  const Json mount = {{"hostPath", fmt::format("{}/{}", folder, metadata_file(claim.claim, request))},
                      {"containerPath", metadata_container_path(claim, request)},
                      {"options", Json::array({"ro", "bind"})}};
  Json edits = {{"mounts", Json::array({mount})}};
  if (Json variables = variables_of(claim, devices, request); !variables.empty())
    edits["env"] = std::move(variables);
  const Json device = {{"name", cdi_name(claim.claim, request)}, {"containerEdits", edits}};
  return cdi_text("metadata", Json::array({device}));
}

std::vector<ClaimFile> claim_files(const ClaimRequest& claim, std::span<const PreparedDevice> devices,
                                   const std::filesystem::path& metadata) {
  const std::filesystem::path cdi = kCdiFolder;
  std::vector<std::string> requests;  // without alternatives, each once
  for (const DeviceOfPod& device : claim.devices) {
    const std::string_view request = main_request(device.request);
    if (std::ranges::find(requests, request) == requests.end()) requests.emplace_back(request);
  }

  std::vector<ClaimFile> out;
  out.reserve(2 * requests.size() + 1);
  for (const std::string& request : requests)
    out.push_back({.path = metadata / metadata_file(claim.claim, request),
                   .text = metadata_text(claim, devices, request)});
  for (const std::string& request : requests)
    out.push_back({.path = cdi / metadata_cdi_file(claim.claim, request),
                   .text = metadata_cdi_text(claim, devices, request, "/" + metadata.string())});
  out.push_back({.path = cdi / claim_cdi_file(claim.claim), .text = claim_cdi_text(claim, devices)});
  return out;
}

}  // namespace ferry::api
