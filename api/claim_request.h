// SPDX-License-Identifier: Apache-2.0
// Requests of `ferry dra` to hostd, about the devices of a ResourceClaim. hostd listens on kClaimSocket, a
// Unix socket of type SOCK_SEQPACKET in a folder that only the group of `ferry dra` may enter, and checks the
// user of the client (SO_PEERCRED). A connection has one request and one answer, each a packet of at most
// kLongestClaimMessage bytes.
//
//   {"version": 2, "action": "prepare", "claim": "5be0c3aa-...", "namespace": "studio", "name": "render-a",
//    "pod_claim": null, "devices": [
//     {"gpu": "0000:3b:00.0", "type": null, "placement": null, "request": "card", "pool": "node7/gpu-ferry",
//      "name": "whole-0000-3b-00-0", "attributes": [{"name": "type", "string": "whole"}], "resources": null},
//     {"gpu": "0000:af:00.0", "type": "1150", "placement": null, ...}]}
//   {"version": 2, "devices": [
//     {"mdev_uuid": null, "function": "0000:3b:00.0",
//      "nodes": [{"path": "/dev/vfio/vfio", "mode": 438}, {"path": "/dev/vfio/57", "mode": null}]}, ...]}
//   {"version": 2, "error": {"code": "refused", "message": "...", "hint": "..."}}
//   {"version": 2, "error": {"code": "errno", "errno": 16, "message": "...", "hint": null}}
//
// hostd writes the files by which the devices reach a container (claim_files.h), before it answers. It
// answers when the work has ended. A client that cannot wait closes the connection: hostd finishes the work,
// and answers the same request at once when it comes again. A claim is prepared as a whole or not at all. To
// unprepare a claim that hostd does not know, or that is undone already, succeeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"
#include "common/text/words.h"
#include "vfio/pci/pci_address.h"

namespace ferry::api {

inline constexpr std::size_t kLongestClaimMessage = std::size_t{64} * 1024;
inline constexpr int kClaimRequestVersion = 2;

enum class ClaimAction { prepare, unprepare };
inline constexpr Words<ClaimAction, 2> kClaimActions = {
    {{"prepare", ClaimAction::prepare}, {"unprepare", ClaimAction::unprepare}}};
constexpr const auto& words_of(ClaimAction /*action*/) {
  return kClaimActions;
}

struct RequestedDevice {
  vfio::PciAddress gpu;   ///< of a whole device: the first GPU of its IOMMU group
  std::string type = {};  ///< the ID of the vGPU's type: "nvidia-1150", "1150"; empty: a whole device
  /// The first placement unit, for a GPU with mixed sizes.
  std::optional<std::uint32_t> placement = {};
  bool operator==(const RequestedDevice&) const = default;
};

/// The value of an attribute. The API also has booleans and versions, which Ferry does not publish.
using Attribute = std::variant<std::int64_t, std::string>;
/// Values by the attribute's name. A name without a domain ("type") belongs to the driver's domain.
using Attributes = std::map<std::string, Attribute>;

/// A device of a claim, with the names of the API server by which a pod gets it.
struct DeviceOfPod {
  RequestedDevice device = {};
  std::string request;  ///< "card", or "card/small" where the claim lists alternatives
  std::string pool;
  std::string name;  ///< a DNS label, unique in the pool
  Attributes attributes = {};
  /// Names of the extended resource by which the pod asks for the device: "nvidia.com/AD102GL_L40S". Empty:
  /// the pod names a claim.
  std::vector<std::string> resources = {};
  bool operator==(const DeviceOfPod&) const = default;
};

struct ClaimRequest {
  ClaimAction action = ClaimAction::prepare;
  std::string claim;  ///< UID
  std::string space;  ///< namespace
  std::string name;
  std::string pod_claim = {};             ///< the pod's name of a claim from a template; else empty
  std::vector<DeviceOfPod> devices = {};  ///< none with ClaimAction::unprepare: hostd has a record
  bool operator==(const ClaimRequest&) const = default;
};

/// A node that a VM opens.
struct DeviceNode {
  std::string path;                        ///< on the host and in the container: "/dev/vfio/57"
  std::optional<std::uint32_t> mode = {};  ///< permission bits on the host; absent: they could not be read
  bool operator==(const DeviceNode&) const = default;
};

/// The answer of hostd about a device of a claim.
struct PreparedDevice {
  std::string mdev_uuid = {};  ///< of a mediated device; else empty
  /// The function that the VM gets: the whole GPU, or a vGPU's virtual function. Absent for a mediated
  /// device.
  std::optional<vfio::PciAddress> function = {};
  std::vector<DeviceNode> nodes = {};
  bool operator==(const PreparedDevice&) const = default;
};

std::string claim_request_text(const ClaimRequest& request);
/// Errc::malformed_host: no such request; the message has the place.
Result<ClaimRequest> read_claim_request(std::string_view text);

/// The answer: the devices in order of the request's (none after unprepare), or the error, whose texts are
/// cut where the answer would be too long.
std::string claim_answer_text(const Result<std::vector<PreparedDevice>>& answer);
/// The error of the answer keeps its code, message and hint. Errc::malformed_host: no such answer.
Result<std::vector<PreparedDevice>> read_claim_answer(std::string_view text);

}  // namespace ferry::api
