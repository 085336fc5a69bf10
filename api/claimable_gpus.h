// SPDX-License-Identifier: Apache-2.0
// The GPUs of a node that claims can have (kClaimableGpusFile). hostd alone writes the file, atomically and
// only after a change. `ferry dra` reads it and publishes ResourceSlices of it, since it sees no sysfs
// itself.
//
//   {"version": 1, "gpus": [
//     {"address": "0000:3b:00.0", "iommu_group": 42 | null, "vendor": 4318, "device": 9913,
//      "product": "AD102GL [L40S]",
//      "memory_mib": 49140, "bar_mib": 0, "numa_node": 0 | null, "pcie_root": "pci0000:3a" | null,
//      "for_dra": true, "whole": true, "framework": "none | mdev | vendor_vfio", "mixed_sizes": false,
//      "types": [
//        {"id": "1150", "name": "NVIDIA L40S-6Q", "short_name": "L40S-6Q", "framebuffer_mib": 6144,
//         "most_per_gpu": 8 | null, "allowed": true, "size": 0, "placements": [],
//         "fills": "gi-1g.18gb" | "vf" | null}],
//      "health": "ready | unhealthy", "reason": null, "vgpu_reason": null,
//      "lost_claims": ["5be0c3aa-..."], "unplugged": []}]}
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/text/words.h"
#include "vfio/pci/pci_address.h"

namespace ferry::api {

enum class VgpuFramework {
  none,         ///< the GPU makes no vGPUs
  mdev,         ///< a VM gets a mediated device, which has a UUID
  vendor_vfio,  ///< a VM gets a virtual function
};
inline constexpr Words<VgpuFramework, 3> kVgpuFrameworks = {{{"none", VgpuFramework::none},
                                                             {"mdev", VgpuFramework::mdev},
                                                             {"vendor_vfio", VgpuFramework::vendor_vfio}}};
constexpr const auto& words_of(VgpuFramework /*framework*/) {
  return kVgpuFrameworks;
}

/// A vGPU type of a GPU without vGPUs. A GPU with vGPUs lists fewer types, so the caller remembers them.
struct VgpuType {
  std::string id = {};                ///< "nvidia-1150", or "1150"
  std::string name = {};              ///< the driver's: "NVIDIA L40S-6Q"
  std::string short_name = {};        ///< as profiles have it: "L40S-6Q"
  std::uint32_t framebuffer_mib = 0;  ///< 0: unknown, and the type is not published
  std::optional<std::uint32_t> most_per_gpu =
      {};                                      ///< of vGPUs of this type alone; absent: memory is the limit
  bool allowed = true;                         ///< the admin allows it. False: it is not published
  std::uint32_t size = 0;                      ///< of a GPU with mixed sizes: in the driver's unit
  std::vector<std::uint32_t> placements = {};  ///< of a GPU with mixed sizes: first units, ascending
  /// The part of the GPU that each vGPU fills, of which there are `most_per_gpu`: a GPU instance (MIG) of a
  /// profile, "gi-1g.18gb", or a virtual function that a VM gets whole, "vf". Empty: time-sliced.
  std::string fills = {};
  bool operator==(const VgpuType&) const = default;
};

enum class GpuHealth {
  ready,
  unhealthy,  ///< no new claim gets a device of it
};
inline constexpr Words<GpuHealth, 2> kGpuHealths = {
    {{"ready", GpuHealth::ready}, {"unhealthy", GpuHealth::unhealthy}}};
constexpr const auto& words_of(GpuHealth /*health*/) {
  return kGpuHealths;
}

/// A GPU whose policy is `allocation: dra`, or that has claims still.
struct ClaimableGpu {
  vfio::PciAddress address;
  std::optional<std::uint32_t> iommu_group = {};  ///< absent: the GPU is in none, and unhealthy
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::string product = {};      ///< "GH100 [H100 SXM5 80GB]"; may be of any length
  std::uint32_t memory_mib = 0;  ///< 0: unknown
  /// Size of its largest range of addresses, if `memory_mib` is unknown. 0: it has none.
  std::uint32_t bar_mib = 0;
  std::optional<int> numa_node = {};
  std::string pcie_root = {};  ///< "pci0000:16"; empty: unknown
  bool for_dra = true;         ///< its policy is `allocation: dra`
  bool whole = true;           ///< the policy lets VMs have the whole GPU
  VgpuFramework framework = VgpuFramework::none;
  /// vGPUs of several sizes may exist at a time, each at a placement. It changes only while the GPU has no
  /// vGPUs. False: all vGPUs have one size.
  bool mixed_sizes = false;
  std::vector<VgpuType> types = {};
  GpuHealth health = GpuHealth::ready;
  std::string reason = {};  ///< of its health, in a few words: "fatal PCIe errors"
  /// Why no new claim gets a vGPU of it, although it may be had whole: "8 of its 16 virtual functions are
  /// missing since a claim has ended". Empty: one may.
  std::string vgpu_reason = {};
  /// UIDs of claims that were prepared with a device of this GPU, which another program has removed or taken
  /// from vfio since. In order.
  std::vector<std::string> lost_claims = {};
  /// Addresses of GPUs that are gone, of whole devices that claims have and whose first GPU is this one.
  std::vector<std::string> unplugged = {};

  /// True if each vGPU fills a part of the GPU that exists already.
  bool has_parts() const {
    return std::ranges::any_of(types, [](const VgpuType& type) { return !type.fills.empty(); });
  }
  /// True if the vGPUs share the GPU, and all that exist at a time have one size.
  bool has_one_size() const { return !mixed_sizes && !has_parts(); }
  /// True if a new claim may get the whole GPU, or with `whole_gpu` false a vGPU of it.
  bool is_ready(bool whole_gpu) const {
    return health == GpuHealth::ready && (whole_gpu || vgpu_reason.empty());
  }
  /// Why is_ready() is false. May be empty.
  const std::string& obstacle() const { return health == GpuHealth::ready ? vgpu_reason : reason; }
  bool operator==(const ClaimableGpu&) const = default;
};

/// The file's content, with the GPUs in order of address.
std::string claimable_gpus_text(const std::vector<ClaimableGpu>& gpus);

/// Unknown keys are ignored. Errc::malformed_host: not such a file, another version, a key that is missing or
/// has a wrong value, or an address that stands twice; the message has the place.
Result<std::vector<ClaimableGpu>> read_claimable_gpus(std::string_view text);

}  // namespace ferry::api
