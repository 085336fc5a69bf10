// SPDX-License-Identifier: Apache-2.0
// The advertised resources (api/advertised_resources.h) of this host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "api/advertised_resources.h"
#include "api/files.h"
#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

/// Absent: there is no such file, so no device is advertised. `read` may be api::read_allocations instead.
Result<std::optional<api::AdvertisedResources>> read_advertised_resources(
    const HostFs& host, const std::filesystem::path& file = api::kAdvertisedFile,
    Result<api::AdvertisedResources> (*read)(std::string_view) = api::read_advertised_resources);

/// The IOMMU group of a PCI function or a mediated device; absent: it has none.
std::optional<std::uint32_t> iommu_group_of(const HostFs& host, const std::string& device);

/// The advertised device that is this function or mediated device, by ID or group. nullptr: there is none.
const api::AdvertisedDevice* find_device(const HostFs& host, const api::AdvertisedResources& advertised,
                                         const std::string& device);

}  // namespace ferry::host
