// SPDX-License-Identifier: Apache-2.0
// The files by which a prepared claim reaches a container: CDI files for the container runtime, and metadata
// files by which KubeVirt learns the device of a request. All are made from the request to hostd and its
// answer, so they can be written again at any time. hostd alone writes them, since a CDI file may name
// programs that the runtime runs as root; `ferry dra` names their devices to the kubelet.
//
// ABI: Container Device Interface 0.5.0, the first that allows a name that begins with a digit; KEP 5304,
// metadata.resource.k8s.io/v1alpha1, in the container's paths that kubernetes/dynamic-resource-allocation
// uses. KubeVirt takes exactly one device a request from it: by its `mdevUUID`, else by its PCI address.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/claim_request.h"

namespace ferry::api {

inline constexpr std::string_view kDraDriver = "gpu-ferry.io";
/// Relative to the host's root, as container runtimes have it: /var/run is a link.
inline constexpr const char* kCdiFolder = "run/cdi";

/// The request without the alternative that was chosen: "card" of "card/small". The kubelet takes this one.
std::string_view main_request(std::string_view request);

// CDI names. A runtime reads all files of its folder, so each name has the claim's UID.

/// "gpu-ferry.io-claim_<uid>.json", the file of a claim's devices in the CDI folder.
std::string claim_cdi_file(std::string_view uid);
/// "gpu-ferry.io/claim=<uid>_<device>"; neither has a `_`, so no two devices have one name.
std::string claim_cdi_id(std::string_view uid, std::string_view device);
/// "gpu-ferry.io_metadata_<uid>_<request>.json", the file of a request's metadata in the CDI folder.
std::string metadata_cdi_file(std::string_view uid, std::string_view request);
/// "gpu-ferry.io/metadata=<uid>_<request>"
std::string metadata_cdi_id(std::string_view uid, std::string_view request);
/// "<uid>_<request>.json", in hostd's folder for metadata. The UID is in it, so that a late removal for a
/// former claim does not take the files of a new claim of its name.
std::string metadata_file(std::string_view uid, std::string_view request);
/// The UID of the claim that a file of either folder belongs to; absent: the file is not of this driver.
std::optional<std::string> claim_of_cdi_file(std::string_view file);
std::optional<std::string> claim_of_metadata_file(std::string_view file);

/// The CDI file of a claim's devices: their nodes, and a variable that keeps NVIDIA's container runtime from
/// adding GPUs. A container runtime creates a node without `fileMode` with 0666.
std::string claim_cdi_text(const ClaimRequest& claim, std::span<const PreparedDevice> devices);

/// The metadata file's path in a container.
std::string metadata_container_path(const ClaimRequest& claim, std::string_view request);
/// The metadata file of a request: its devices with their attributes. A mediated device has the attribute
/// `mdevUUID` and no PCI address; all others have the address of the function that the VM gets.
std::string metadata_text(const ClaimRequest& claim, std::span<const PreparedDevice> devices,
                          std::string_view request);
/// The CDI file that mounts it. For a request by an extended resource it also has the variables by which
/// KubeVirt finds the devices (resource_variable()), in the allocation's order. `folder`: hostd's folder for
/// metadata, an absolute path on the host.
std::string metadata_cdi_text(const ClaimRequest& claim, std::span<const PreparedDevice> devices,
                              std::string_view request, std::string_view folder);

struct ClaimFile {
  std::filesystem::path path;  ///< relative to the host's root
  std::string text;
  bool operator==(const ClaimFile&) const = default;
};

/// All files of a prepared claim, in the order in which they are written: a CDI file names metadata that must
/// be complete. `metadata`: hostd's folder for metadata, relative to the host's root.
std::vector<ClaimFile> claim_files(const ClaimRequest& claim, std::span<const PreparedDevice> devices,
                                   const std::filesystem::path& metadata);

}  // namespace ferry::api
