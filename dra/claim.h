// SPDX-License-Identifier: Apache-2.0
// A ResourceClaim, as far as the node that prepares it needs it.
// ABI: kubernetes/api, resource/v1/types.go. The read part is the same in v1, v1beta2 and v1beta1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "api/claim_files.h"
#include "common/result.h"

namespace ferry::dra {

using api::main_request;

/// A claim as the kubelet names it.
struct ClaimKey {
  std::string uid;
  std::string space;  ///< namespace
  std::string name;
  bool operator==(const ClaimKey&) const = default;
};

/// "claim studio/render-a", for messages.
std::string label(const ClaimKey& key);

/// A device that the scheduler has allocated.
struct AllocatedDevice {
  std::string request;  ///< "card", or "card/small" where the claim lists alternatives
  std::string device;   ///< its name in the node's pool
  /// The DeviceClass of the request, in a claim that the scheduler has made for extended resources. Empty in
  /// others, and once `resources` has the names of the class.
  std::string device_class = {};
  std::vector<std::string> resources = {};  ///< api::DeviceOfPod::resources
  bool operator==(const AllocatedDevice&) const = default;
};

struct AllocatedClaim {
  ClaimKey key;
  /// The name in the pod's `resourceClaims` of a claim that was made from a template. Empty: the pod names
  /// the claim itself.
  std::string pod_claim = {};
  std::vector<AllocatedDevice> devices = {};  ///< of Ferry's driver, at least one, in the API's order
  /// Parts that KubeVirt cannot use, each as a sentence for an event.
  std::vector<std::string> warnings = {};
};

/// Errc::malformed_host: the UID, the namespace or the name cannot be one of Kubernetes, and so must not
/// become part of a path.
Result<> check_key(const ClaimKey& key);

/// Reads the allocation of the claim that the kubelet asks for. `pool`: the node's. The message names the
/// claim, and the hint what a person can do.
///
/// Errc::not_found: the object has another UID, since the claim has been deleted and made again.
/// Errc::refused: it is not allocated, or not to this node. Errc::unsupported: it asks for admin access, for
/// a share of a device, or passes parameters. Errc::malformed_host: the object is no ResourceClaim, has a
/// device twice, or a name in it cannot be one of Kubernetes.
Result<AllocatedClaim> read_allocated_claim(const nlohmann::json& object, const ClaimKey& key,
                                            std::string_view pool);

/// The names by which pods ask for devices of a DeviceClass as an extended resource: the one that the class
/// has, and the one that each class has by its own name. `name`: the class's. Errc::unsupported: the name of
/// the resource is too long, or has a character that the name of a variable cannot have.
Result<std::vector<std::string>> resources_of(const nlohmann::json& device_class, const std::string& name);

}  // namespace ferry::dra
