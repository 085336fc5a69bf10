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
#include "dra/checkpoint.h"

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

struct AllocatedClaim {
  /// Its devices are those of Ferry's driver, at least one, in the API's order. They have the fields that the
  /// API server knows; `ferry dra` adds the others from its slices.
  CheckpointClaim record = {};
  /// The DeviceClass of each device's request, in a claim that the scheduler has made for extended resources.
  /// Empty in others, and once ClaimDevice::resources has the names of the class.
  std::vector<std::string> classes = {};
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
