// SPDX-License-Identifier: Apache-2.0
// A node as its ResourceSlices show it: plain values, independent of sysfs and of the API server.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/claim_request.h"
#include "api/claimable_gpus.h"
#include "dra/slices/resource_slice.h"
#include "vfio/pci/pci_address.h"

namespace ferry::dra {

using api::GpuHealth;
using api::VgpuFramework;
using api::VgpuType;
using Gpu = api::ClaimableGpu;

inline constexpr std::uint64_t kMiB = 1ULL << 20U;

/// A device that a claim has: from the moment in which its preparation begins until it is undone.
struct HeldDevice {
  std::string claim;           ///< UID
  api::RequestedDevice asked;  ///< by which hostd knows it
  Device device;               ///< as it was published, without taints
  CounterSet counters;         ///< as its Publication had it; no name: the device uses no counters
};

struct NodeModel {
  SliceOwner owner;
  std::vector<Gpu> gpus;
  std::vector<HeldDevice> held = {};
  /// The names of devices of the node's pool in the allocations of ResourceClaims, prepared or not.
  std::set<std::string> allocated = {};
  ServerFeatures server = {};

  /// nullptr: the node has no such GPU.
  const Gpu* find(const vfio::PciAddress& address) const {
    const auto found = std::ranges::find(gpus, address, &Gpu::address);
    return found == gpus.end() ? nullptr : &*found;
  }
};

}  // namespace ferry::dra
