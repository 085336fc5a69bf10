// SPDX-License-Identifier: Apache-2.0
// Names of DRA objects, within the limits of the API server. A single name beyond its limit would make the
// server refuse a whole ResourceSlice.
// ABI: kubernetes/api, resource/v1/types.go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/claim_files.h"
#include "vfio/pci/pci_address.h"

namespace ferry::dra {

inline constexpr std::string_view kDriver = api::kDraDriver;

// Keys of taints.

inline constexpr std::string_view kInUseTaint = "gpu-ferry.io/in-use";
inline constexpr std::string_view kOtherSizeTaint = "gpu-ferry.io/other-size";
inline constexpr std::string_view kUnhealthyTaint = "gpu-ferry.io/unhealthy";
inline constexpr std::string_view kGoneTaint = "gpu-ferry.io/gone";

// Limits of the API server.

inline constexpr std::size_t kMostDevices = 128;           ///< in a slice
inline constexpr std::size_t kMostDevicesWithExtras = 64;  ///< if one of them has taints or uses counters
inline constexpr std::size_t kMostCounterSets = 8;         ///< in a slice
inline constexpr std::size_t kMostCounters = 32;           ///< in a counter set
inline constexpr std::size_t kLongestName = 63;            ///< of a device, a counter or a counter set
inline constexpr std::size_t kLongestText = 64;            ///< bytes of an attribute's text
inline constexpr std::size_t kLongestPool = 253;
inline constexpr std::size_t kLongestGenerateName = 58;  ///< the server cuts more, before its own characters

/// "node7/gpu-ferry". Not the node's name alone: schedulers before July 2026 mix up the counters of two
/// drivers whose pools have one name. A node name that leaves no room is cut and gets a hash.
std::string pool_name(std::string_view node);
/// "0001f-gpu-ferry.io-node7-": a slice's generateName, by its place in the pool. A long node name is cut.
std::string slice_name_prefix(std::size_t index, std::string_view node);

/// "0000-3b-00-0": an address as a part of a name.
std::string address_label(const vfio::PciAddress& address);
/// "group-42": the counter set of an IOMMU group.
std::string counter_set_name(std::uint32_t iommu_group);
/// "whole-0000-3b-00-0": `gpu` is the first GPU of the IOMMU group.
std::string whole_device_name(const vfio::PciAddress& gpu);
/// "vgpu-0000-3b-00-0-1150-3". `number`: a slot, or a placement. mdev's "nvidia-1150" and the bare "1150" of
/// vendor-specific VFIO have one name. An ID that is no part of a DNS label, or is long, gets a hash.
std::string vgpu_device_name(const vfio::PciAddress& gpu, std::string_view type_id, std::uint32_t number);
/// The number in "nvidia-1150" or "1150"; absent: the ID has another form.
std::optional<std::uint32_t> type_number(std::string_view type_id);

/// The text for an attribute: control characters and bytes that are no UTF-8 are escaped, and the rest is cut
/// between two characters.
std::string attribute_text(std::string_view text);
/// The text as the value of a taint, which has the form of a label's value. Empty: no character is left.
std::string taint_value(std::string_view text);

/// "6Gi", "16": the form in which the API server writes a Quantity that is a power of 1024.
std::string quantity_text(std::uint64_t value);
/// Reads a whole Quantity with or without a suffix: "6Gi", "1k". Absent: another form, or beyond 64 bits.
std::optional<std::uint64_t> parse_quantity(std::string_view text);

/// True if the server's attribute resource.kubernetes.io/pciBusID can have the address: its domain has four
/// digits.
bool fits_pci_bus_id(const vfio::PciAddress& address);

}  // namespace ferry::dra
