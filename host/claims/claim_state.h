// SPDX-License-Identifier: Apache-2.0
// Looks at the devices of claims (claim_record.h) on the host, and changes none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "host/claims/claim_record.h"
#include "host/gpu_conditions.h"
#include "host/node_apply.h"
#include "vfio/pci/pci_address.h"

namespace ferry::host {

/// True if all devices of a claim are as they were made ready.
bool is_intact(const Claim& claim, const ScannedNode& node);
/// The UIDs of the claims of which a device is not as it was made ready, by the GPU of that device. A device
/// of a GPU that is gone, cannot be read or is no accelerator by the policy's rules is not among them.
std::map<vfio::PciAddress, std::vector<std::string>> lost_claims(const std::vector<Claim>& prepared,
                                                                 const ScannedNode& node);

/// The GPUs that are gone of whole devices that claims have, by the device's first GPU.
std::map<vfio::PciAddress, std::vector<std::string>> unplugged_gpus(const std::vector<Claim>& prepared,
                                                                    const vfio::Inventory& inventory);

/// The answer about a device that is ready. Errc::failed: its nodes are missing.
Result<api::PreparedDevice> read_prepared(const NodeContext& context, const ClaimedDevice& device);

}  // namespace ferry::host
