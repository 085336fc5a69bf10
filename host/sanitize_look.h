// SPDX-License-Identifier: Apache-2.0
// The GPUs that hostd sanitizes between two users, and the requests of administrators about them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "api/advertised_resources.h"
#include "api/host_status.h"
#include "common/result.h"
#include "host/claims/claim_record.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

/// `ferry sanitize` writes an address and a word in a line: "0000:17:00.0 again" or "0000:17:00.0 accept".
/// hostd removes the file once it has recorded the request.
inline constexpr const char* kSanitizeRequestFile = "run/ferry/hostd/sanitize-request";

struct SanitizeRequest {
  vfio::PciAddress gpu;
  bool accepts = false;  ///< the GPU is to be available without a proof
};
/// The request of `ferry sanitize`; absent: there is none, or the file has another form.
std::optional<SanitizeRequest> read_sanitize_request(const HostFs& host);
/// Errc::refused: hostd has not read an earlier request yet.
Result<> write_sanitize_request(HostFs& host, const SanitizeRequest& request);

/// True for a GPU on a vfio driver, which VMs get whole.
bool is_sanitized(const api::AcceleratorStatus& gpu);

/// A GPU in the plugin's lists.
struct ListedGpu {
  std::string user = {};                         ///< "pod games/vm-1", of its group; empty: none
  std::optional<std::uint64_t> used_since = {};  ///< its count when a pod released it or its group
  bool may_be_allocated = false;                 ///< it, or another device of its group, is Healthy
};
/// Nothing for a GPU that DRA has. `gpus`: all of the node.
ListedGpu listed_as(const api::AcceleratorStatus& gpu, const api::AdvertisedResources& listed,
                    std::span<const api::AcceleratorStatus> gpus);

/// "claim studio/render", from its first record on; empty: no claim has the GPU.
std::string claimed_by(const vfio::PciAddress& gpu, const GpusWithClaims& claims);

}  // namespace ferry::host
