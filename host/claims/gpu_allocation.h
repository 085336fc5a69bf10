// SPDX-License-Identifier: Apache-2.0
// The program that has each GPU of a node now: the device plugin or DRA. A policy says which one is desired.
// A GPU changes between them only while no pod, VM or claim uses it, and with all GPUs of its IOMMU group.
// Pure; NodeKeeper reads the facts.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/host_status.h"
#include "common/result.h"
#include "host/gpu_conditions.h"
#include "policy/policy.h"
#include "vfio/pci/pci_address.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// The device users of a GPU, of its group and of its vGPUs. Parts of the host that depend on it, such as a
/// screen, are not among them.
struct GpuUse {
  std::vector<vfio::DeviceUser> users = {};
  /// "0000:3b:00.0 is in use: ...", or why a user may have been missed. Empty: it is free.
  std::vector<std::string> reasons = {};
};

struct AllocationFacts {
  /// The GPUs that the policy gives to DRA (policy::ResolvedPolicy::for_dra).
  std::map<vfio::PciAddress, policy::AllowedDevices> for_dra = {};
  std::set<vfio::PciAddress> published = {};  ///< the GPUs that DRA had in the last round
  std::set<vfio::PciAddress> claimed = {};    ///< the GPUs that claims have, at least one of a group
  /// The GPUs that lack virtual functions since a claim, with the sentence (gpus_without_functions()).
  std::map<vfio::PciAddress, std::string> without_functions = {};
  /// By GPU; needed of GPUs that are about to change. Absent: free.
  std::map<vfio::PciAddress, GpuUse> use = {};
  /// The device plugin may not have read yet that the GPUs are unavailable.
  bool plugin_is_asked = false;
};

struct Allocations {
  /// The GPUs that DRA has. They keep their drivers and vGPUs, whatever the policy says.
  std::set<vfio::PciAddress> dra = {};
  /// Of the GPUs that wait for their desired allocation: pending, or blocked with their users. And of DRA's
  /// GPUs that lack virtual functions: failed.
  GpuConditions conditions = {};
  /// Why the record of claims cannot be read (GpusWithClaims::fault).
  std::optional<Error> fault = {};
  /// The devices of DRA's GPUs, and of those that are to become so. The plugin must not advertise them.
  std::vector<api::UnavailableDevice> unavailable = {};
};

/// The GPUs that the policy gives to DRA and that the device plugin still has.
std::set<vfio::PciAddress> on_the_way_to_dra(const ScannedNode& node, const AllocationFacts& facts);
/// The GPUs that the policy does not give to DRA and that a claim has, or a claim of their IOMMU group.
std::set<vfio::PciAddress> kept_by_claims(const ScannedNode& node, const AllocationFacts& facts);

/// The functions of the GPUs and of their IOMMU groups, their virtual functions and their vGPUs.
std::vector<api::UnavailableDevice> unavailable_for_dra(const ScannedNode& node,
                                                        const std::set<vfio::PciAddress>& gpus);

/// All GPUs of an IOMMU group have the same value in `facts.for_dra` (policy::check_allocations()).
Allocations allocate(const ScannedNode& node, const AllocationFacts& facts);

}  // namespace ferry::host
