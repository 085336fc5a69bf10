// SPDX-License-Identifier: Apache-2.0
#include "dra/claim.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/claim_fields.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "dra/names.h"

namespace ferry::dra {
namespace {

using nlohmann::json;

constexpr const char* kPodClaimAnnotation = "resource.kubernetes.io/pod-claim-name";
// ABI: KEP 5004. The scheduler makes a claim with this annotation for a pod that asks for extended resources.
constexpr const char* kForResourcesAnnotation = "resource.kubernetes.io/extended-resource-claim";
constexpr const char* kImplicitDomain = "deviceclass.resource.kubernetes.io";
constexpr std::size_t kLongestResourcePart = 63;  // behind the "/"
constexpr std::size_t kLongestObjectName = 253;

tl::unexpected<Error> refuse(Errc code, const ClaimKey& key, const std::string& problem, std::string hint) {
  return fail(code, fmt::format("{}: {}", label(key), problem), std::move(hint));
}

tl::unexpected<Error> malformed(const ClaimKey& key, const std::string& problem) {
  return refuse(Errc::malformed_host, key, problem,
                "the API server shows something that is no ResourceClaim");
}

/// True for names that may become parts of paths and of CDI names.
bool is_name(std::string_view text, std::size_t longest) {
  return !text.empty() && text.size() <= longest && is_alphanumeric(text.front()) &&
         is_alphanumeric(text.back()) &&
         std::ranges::all_of(text, [](char c) { return is_alphanumeric(c) || c == '-' || c == '.'; });
}

bool is_label(std::string_view text) {
  return is_name(text, kLongestName) && text.find('.') == std::string_view::npos;
}

/// The class of a request that has no alternatives; empty: there is none.
std::string class_of(const json& object, std::string_view request) {
  const json& requests = json_at(json_at(json_at(object, "spec"), "devices"), "requests");
  if (!requests.is_array()) return {};
  for (const json& one : requests)
    if (text_at(one, "name") == request) return text_at(json_at(one, "exactly"), "deviceClassName");
  return {};
}

/// Errors of one result of Ferry's driver.
Result<AllocatedDevice> read_device(const json& result, const ClaimKey& key, std::string_view pool) {
  AllocatedDevice out{.request = text_at(result, "request"), .device = text_at(result, "device")};
  const std::string_view request = out.request;
  const std::string_view first = main_request(request);
  const bool is_request =
      is_label(first) && (first.size() == request.size() || is_label(request.substr(first.size() + 1)));
  if (!is_request || !is_label(out.device))
    return malformed(key,
                     fmt::format("it has the device '{}' for the request '{}'", out.device, out.request));
  if (const std::string of = text_at(result, "pool"); of != pool)
    return refuse(Errc::refused, key,
                  fmt::format("it has a device of the pool {}, and this node's is {}", of, pool),
                  "delete the pod, so that its claim is allocated again");
  if (json_at(result, "adminAccess") == true)
    return refuse(Errc::unsupported, key, fmt::format("the request {} asks for admin access", out.request),
                  "a GPU of a VM has no second user: remove adminAccess from the claim");
  if (!text_at(result, "shareID").empty())
    return refuse(Errc::unsupported, key,
                  fmt::format("the request {} asks for a share of a device", out.request),
                  "ask for a vGPU of the size that the VM needs");
  return out;
}

std::vector<std::string> warnings_of(const AllocatedClaim& claim) {
  std::map<std::string_view, std::size_t> devices;
  std::vector<std::string> out;
  for (const AllocatedDevice& device : claim.devices) {
    const std::string_view request = main_request(device.request);
    if (++devices[request] == 2 && device.device_class.empty())
      out.push_back(
          fmt::format("{}: the request {} has more than one device, and KubeVirt takes one for each request: "
                      "make a request for each GPU",
                      label(claim.key), request));
    if (request.size() != device.request.size() && devices[request] == 1)
      out.push_back(
          fmt::format("{}: KubeVirt finds no request {}, since its name in the pod's files is {}: "
                      "do without firstAvailable",
                      label(claim.key), request, device.request));
  }
  return out;
}

}  // namespace

std::string label(const ClaimKey& key) {
  return fmt::format("claim {}/{}", key.space, key.name);
}

Result<> check_key(const ClaimKey& key) {
  if (is_label(key.uid) && is_label(key.space) && is_name(key.name, kLongestObjectName)) return {};
  return malformed(key, fmt::format("its UID {} or its name cannot be one of Kubernetes", key.uid));
}

Result<AllocatedClaim> read_allocated_claim(const json& object, const ClaimKey& key, std::string_view pool) {
  if (auto names = check_key(key); !names) return fail(std::move(names).error());
  const json& metadata = json_at(object, "metadata");
  const std::string uid = text_at(metadata, "uid");
  if (uid.empty()) return malformed(key, "it has no UID");
  if (uid != key.uid)
    return refuse(Errc::not_found, key,
                  fmt::format("its UID is {}, and the kubelet asks for {}", uid, key.uid),
                  "the claim was deleted and made again: delete the pod that uses the former one");

  const json& allocation = json_at(json_at(object, "status"), "allocation");
  if (!allocation.is_object())
    return refuse(Errc::refused, key, "it is not allocated",
                  "the kubelet asks again once the scheduler has allocated it");
  const json& devices = json_at(allocation, "devices");
  const json& results = json_at(devices, "results");
  if (!results.is_array()) return malformed(key, "its allocation has no results");

  AllocatedClaim out{.key = key, .pod_claim = text_at(json_at(metadata, "annotations"), kPodClaimAnnotation)};
  if (!out.pod_claim.empty() && !is_label(out.pod_claim))
    return malformed(key, fmt::format("the pod cannot call it '{}'", out.pod_claim));
  const bool for_resources = text_at(json_at(metadata, "annotations"), kForResourcesAnnotation) == "true";
  for (const json& result : results) {
    if (text_at(result, "driver") != kDriver) continue;
    auto device = read_device(result, key, pool);
    if (!device) return fail(std::move(device).error());
    if (for_resources) device->device_class = class_of(object, device->request);
    if (for_resources && !is_name(device->device_class, kLongestObjectName))
      return malformed(key, fmt::format("its request {} has no DeviceClass", device->request));
    if (std::ranges::find(out.devices, device->device, &AllocatedDevice::device) != out.devices.end())
      return malformed(key, fmt::format("it has the device '{}' twice", device->device));
    out.devices.push_back(std::move(*device));
  }

  if (out.devices.empty())
    return refuse(Errc::refused, key, fmt::format("it has no device of {}", kDriver),
                  "the kubelet asks the wrong driver: see the claim's status.allocation");
  const json& configs = json_at(devices, "config");
  if (configs.is_array())
    for (const json& config : configs)
      if (text_at(json_at(config, "opaque"), "driver") == kDriver)
        return refuse(Errc::unsupported, key, fmt::format("it passes parameters to {}", kDriver),
                      "this version takes none: remove `config` from the claim or its device class");
  out.warnings = warnings_of(out);
  return out;
}

Result<std::vector<std::string>> resources_of(const json& device_class, const std::string& name) {
  std::vector<std::string> out;
  const std::string own = text_at(json_at(device_class, "spec"), "extendedResourceName");
  if (!own.empty() && !api::is_resource_name(own))
    return fail(
        Errc::unsupported,
        fmt::format("DeviceClass {}: its extendedResourceName '{}' cannot be a variable's", name, own),
        "give the class a name of at most 253 letters, digits and `.`, `_`, `-`, `/`");
  if (!own.empty()) out.push_back(own);
  // No pod can ask by a longer one.
  if (name.size() <= kLongestResourcePart) out.push_back(fmt::format("{}/{}", kImplicitDomain, name));
  return out;
}

}  // namespace ferry::dra
