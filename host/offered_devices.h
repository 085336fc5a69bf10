// SPDX-License-Identifier: Apache-2.0
// The part of run/ferry/plugin/offered.json (kubevirt-plugin/offered_file.h) that moves depend on. Other keys
// are ignored, so that new ones can be added.
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

#include "common/host_fs.h"
#include "common/plugin_files.h"
#include "common/result.h"

namespace ferry {

struct OfferedToKubelet {
  std::string resource;
  std::string id;  ///< an address, a UUID, or for Kata a number
  std::uint32_t iommu_group = 0;
  bool allocated = false;
  bool healthy = true;           ///< as the file says; of one that says neither nothing is held against it
  std::string reason = {};       ///< why it is not
  bool held_with_group = false;  ///< not healthy only because a pod has another device of its IOMMU group
  std::string pod = {};          ///< "namespace/name" of who has it; empty: the plugin does not say
};

struct OfferedResource {
  std::string name;
  bool registered = true;  ///< the kubelet reads its list; as the file says, which outlives the plugin
  std::size_t places = 0;  ///< the number of its places (`--companion-places`)
};

struct OfferedDevices {
  /// Generation of the state.json whose withdrawals are complete; 0: none.
  std::uint64_t state_generation = 0;
  std::vector<OfferedToKubelet> devices;
  /// Reasons of the devices that cannot be allocated, by ID, for people.
  std::map<std::string, std::string> not_offered = {};
  std::vector<OfferedResource> resources = {};  ///< for people; also those without a device now
  std::string stands_back = {};  ///< for people: the reason for standby; empty: the plugin serves

  /// nullptr: no resource has this name.
  const OfferedResource* resource(std::string_view name) const;

  /// The first device whose ID is in `ids` or whose IOMMU group is in `groups`. The group is needed for Kata,
  /// which gives a device a number as its ID. nullptr: there is none.
  const OfferedToKubelet* find(const std::set<std::string>& ids, const std::set<std::uint32_t>& groups) const;
};

/// Errc::malformed_host: the text is not such a file.
Result<OfferedDevices> read_offered_devices(std::string_view text);
/// Absent: there is no such file, so no device is advertised.
Result<std::optional<OfferedDevices>> read_offered_devices(const HostFs& host,
                                                           const std::filesystem::path& file = kOfferedFile);

/// The IOMMU group of a PCI function or a mediated device; absent: it has none.
std::optional<std::uint32_t> iommu_group_of(const HostFs& host, const std::string& device);

/// The advertised device that is this function or mediated device, by ID or group. nullptr: there is none.
const OfferedToKubelet* find_device(const HostFs& host, const OfferedDevices& offered,
                                    const std::string& device);

}  // namespace ferry
