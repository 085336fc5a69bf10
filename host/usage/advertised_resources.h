// SPDX-License-Identifier: Apache-2.0
// The part of run/ferry/plugin/advertised.json (kubevirt-plugin/advertised_file.h) that moves depend on.
// Other keys are ignored, so that new ones can be added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/plugin_files.h"
#include "common/result.h"
#include "hostfs/host_fs.h"

namespace ferry::host {

struct AdvertisedDevice {
  std::string resource;
  std::string id;  ///< an address, a UUID, or for Kata a number
  std::uint32_t iommu_group = 0;
  bool allocated = false;
  bool healthy = true;           ///< as the file says; of one that says neither nothing is held against it
  std::string reason = {};       ///< why it is not
  bool held_with_group = false;  ///< not healthy only because a pod has another device of its IOMMU group
  std::string pod = {};          ///< "namespace/name" of who has it; empty: the plugin does not say
};

struct AdvertisedResource {
  std::string name;
  bool registered = true;  ///< the kubelet reads its list; as the file says, which outlives the plugin
  std::size_t places = 0;  ///< the number of its places (`--companion-places`)
};

struct AdvertisedResources {
  /// Generation of the status.json whose withdrawals are complete; 0: none.
  std::uint64_t state_generation = 0;
  std::vector<AdvertisedDevice> devices;
  /// Reasons of the devices that cannot be allocated, by ID, for people.
  std::map<std::string, std::string> not_advertised = {};
  std::vector<AdvertisedResource> resources = {};  ///< for people; also those without a device now
  std::string standby = {};  ///< for people: the reason for standby; empty: the plugin serves

  /// nullptr: no resource has this name.
  const AdvertisedResource* resource(std::string_view name) const;

  /// The first device whose ID is in `ids` or whose IOMMU group is in `groups`. The group is needed for Kata,
  /// which gives a device a number as its ID. nullptr: there is none.
  const AdvertisedDevice* find(const std::set<std::string>& ids, const std::set<std::uint32_t>& groups) const;
};

/// Errc::malformed_host: the text is not such a file.
Result<AdvertisedResources> read_advertised_resources(std::string_view text);
/// Absent: there is no such file, so no device is advertised.
Result<std::optional<AdvertisedResources>> read_advertised_resources(
    const HostFs& host, const std::filesystem::path& file = kAdvertisedFile);

/// The IOMMU group of a PCI function or a mediated device; absent: it has none.
std::optional<std::uint32_t> iommu_group_of(const HostFs& host, const std::string& device);

/// The advertised device that is this function or mediated device, by ID or group. nullptr: there is none.
const AdvertisedDevice* find_device(const HostFs& host, const AdvertisedResources& advertised,
                                    const std::string& device);

}  // namespace ferry::host
