// SPDX-License-Identifier: Apache-2.0
// The files by which a prepared claim reaches a container: CDI files for the container runtime, and metadata
// files by which KubeVirt learns the device of a request. All are made from the claim's record alone, so they
// can be written again at any time.
//
// ABI: Container Device Interface 0.5.0, the first that allows a name that begins with a digit; KEP 5304,
// metadata.resource.k8s.io/v1alpha1, in the paths that kubernetes/dynamic-resource-allocation uses. KubeVirt
// takes exactly one device a request from it: by its `mdevUUID`, else by its PCI address.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dra/checkpoint.h"

namespace ferry::dra {

// CDI names. A runtime reads all files of its folder, so each name has the claim's UID.

/// "gpu-ferry.io-claim_<uid>.json", the file of a claim's devices in the CDI folder.
std::string claim_cdi_file(std::string_view uid);
/// "gpu-ferry.io/claim=<uid>-<device>"
std::string claim_cdi_id(std::string_view uid, std::string_view device);
/// "gpu-ferry.io_metadata_<uid>_<request>.json", the file of a request's metadata in the CDI folder.
std::string metadata_cdi_file(std::string_view uid, std::string_view request);
/// "gpu-ferry.io/metadata=<uid>_<request>"
std::string metadata_cdi_id(std::string_view uid, std::string_view request);
/// The UID of the claim that a file of the CDI folder belongs to; absent: the file is not of this driver.
/// Files of claims that are not in the checkpoint are left over.
std::optional<std::string> claim_of_cdi_file(std::string_view file);

/// The requests of a claim, without alternatives, each once and in order of its devices. They name files.
std::vector<std::string> requests_of(const CheckpointClaim& claim);

/// The CDI file of a claim's devices: their nodes, and a variable that keeps NVIDIA's container runtime from
/// adding GPUs. A container runtime creates a node without `fileMode` with 0666.
std::string claim_cdi_text(const CheckpointClaim& claim);

/// "<uid>/<request>/metadata.json", below the plugin's folder for metadata on the host. The UID is in it, so
/// that a late removal for a former claim does not take the files of a new claim of its name.
std::string metadata_path(std::string_view uid, std::string_view request);
/// The file's path in a container.
std::string metadata_container_path(const CheckpointClaim& claim, std::string_view request);
/// The metadata file of a request: its devices with their attributes. A mediated device has the attribute
/// `mdevUUID` and no PCI address; all others have the address of the function that the VM gets.
std::string metadata_text(const CheckpointClaim& claim, std::string_view request);
/// The CDI file that mounts it. `folder`: the plugin's folder for metadata, an absolute path on the host.
std::string metadata_cdi_text(const CheckpointClaim& claim, std::string_view request,
                              std::string_view folder);

/// A file and its place.
struct ClaimFile {
  enum class Folder {
    metadata,  ///< the plugin's folder for metadata
    cdi,       ///< the CDI folder
  };
  Folder folder = Folder::cdi;
  std::string path;  ///< below that folder
  std::string text;
  bool operator==(const ClaimFile&) const = default;
};

/// All files of a prepared claim, in the order in which they are written: a CDI file names metadata that must
/// be complete. `folder`: as metadata_cdi_text().
std::vector<ClaimFile> claim_files(const CheckpointClaim& claim, std::string_view folder);

/// A device in the answer to the kubelet.
struct DeviceAnswer {
  std::string request;  ///< without the alternative
  std::string pool;
  std::string device;
  std::vector<std::string> cdi_ids;  ///< the first device of a request has the request's metadata, too
  bool operator==(const DeviceAnswer&) const = default;
};
std::vector<DeviceAnswer> answer_of(const CheckpointClaim& claim);

}  // namespace ferry::dra
