// SPDX-License-Identifier: Apache-2.0
#include "dra/claim.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "api/claim_fields.h"
#include "common/text/json.h"
#include "dra/names.h"

namespace ferry::dra {
namespace {

using nlohmann::json;

constexpr const char* kPodClaimAnnotation = "resource.kubernetes.io/pod-claim-name";
// ABI: KEP 5004. The scheduler makes a claim with this annotation for a pod that asks for extended resources.
constexpr const char* kForResourcesAnnotation = "resource.kubernetes.io/extended-resource-claim";
constexpr const char* kImplicitDomain = "deviceclass.resource.kubernetes.io";
constexpr std::size_t kLongestResourcePart = 63;  // behind the "/"

tl::unexpected<Error> refuse(Errc code, const ClaimKey& key, const std::string& problem, std::string hint) {
  return fail(code, fmt::format("{}: {}", label(key), problem), std::move(hint));
}

tl::unexpected<Error> malformed(const ClaimKey& key, const std::string& problem) {
  return refuse(Errc::malformed_host, key, problem,
                "the API server shows something that is no ResourceClaim");
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
Result<ClaimDevice> read_device(const json& result, const ClaimKey& key, std::string_view pool) {
  ClaimDevice out{.request = text_at(result, "request"),
                  .pool = text_at(result, "pool"),
                  .device = {.name = text_at(result, "device")}};
  if (!api::is_request(out.request) || !api::is_label(out.device.name))
    return malformed(
        key, fmt::format("it has the device '{}' for the request '{}'", out.device.name, out.request));
  if (out.pool != pool)
    return refuse(Errc::refused, key,
                  fmt::format("it has a device of the pool {}, and this node's is {}", out.pool, pool),
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

/// `for_resources`: the scheduler has made the claim for extended resources.
std::vector<std::string> warnings_of(const std::vector<ClaimDevice>& claimed, const ClaimKey& key,
                                     bool for_resources) {
  std::map<std::string_view, std::size_t> devices;
  std::vector<std::string> out;
  for (const ClaimDevice& device : claimed) {
    const std::string_view request = main_request(device.request);
    if (++devices[request] == 2 && !for_resources)
      out.push_back(
          fmt::format("{}: the request {} has more than one device, and KubeVirt takes one for each request: "
                      "make a request for each GPU",
                      label(key), request));
    if (request.size() != device.request.size() && devices[request] == 1)
      out.push_back(
          fmt::format("{}: KubeVirt finds no request {}, since its name in the pod's files is {}: "
                      "do without firstAvailable",
                      label(key), request, device.request));
  }
  return out;
}

}  // namespace

std::string label(const ClaimKey& key) {
  return fmt::format("claim {}/{}", key.space, key.name);
}

Result<> check_key(const ClaimKey& key) {
  if (api::is_label(key.uid) && api::is_label(key.space) && api::is_object_name(key.name)) return {};
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

  const std::string pod_claim = text_at(json_at(metadata, "annotations"), kPodClaimAnnotation);
  if (!pod_claim.empty() && !api::is_label(pod_claim))
    return malformed(key, fmt::format("the pod cannot call it '{}'", pod_claim));
  AllocatedClaim out{
      .record = {.uid = key.uid, .space = key.space, .name = key.name, .pod_claim = pod_claim}};
  std::vector<ClaimDevice>& claimed = out.record.devices;
  const bool for_resources = text_at(json_at(metadata, "annotations"), kForResourcesAnnotation) == "true";
  for (const json& result : results) {
    if (text_at(result, "driver") != kDriver) continue;
    auto device = read_device(result, key, pool);
    if (!device) return fail(std::move(device).error());
    const std::string device_class = for_resources ? class_of(object, device->request) : std::string();
    if (for_resources && !api::is_object_name(device_class))
      return malformed(key, fmt::format("its request {} has no DeviceClass", device->request));
    const std::string& name = device->device.name;
    if (std::ranges::any_of(claimed, [&](const ClaimDevice& one) { return one.device.name == name; }))
      return malformed(key, fmt::format("it has the device '{}' twice", name));
    out.classes.push_back(device_class);
    claimed.push_back(std::move(*device));
  }

  if (claimed.empty())
    return refuse(Errc::refused, key, fmt::format("it has no device of {}", kDriver),
                  "the kubelet asks the wrong driver: see the claim's status.allocation");
  const json& configs = json_at(devices, "config");
  if (configs.is_array())
    for (const json& config : configs)
      if (text_at(json_at(config, "opaque"), "driver") == kDriver)
        return refuse(Errc::unsupported, key, fmt::format("it passes parameters to {}", kDriver),
                      "this version takes none: remove `config` from the claim or its device class");
  out.warnings = warnings_of(claimed, key, for_resources);
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
