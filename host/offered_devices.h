// SPDX-License-Identifier: Apache-2.0
// The part of run/ferry/plugin/offered.json (kubevirt-plugin/offered_file.h) that moving devices depends on.
// Keys that are not of this are passed over: they are only ever added.
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
  std::size_t places = 0;  ///< what is asked for beside devices (`--companion-places`)
};

struct OfferedDevices {
  /// The state.json whose withdrawals are done; 0: of none.
  std::uint64_t state_generation = 0;
  std::vector<OfferedToKubelet> devices;
  /// By ID, what cannot be given to a pod, and why. Nothing that is moved depends on it.
  std::map<std::string, std::string> not_offered = {};
  std::vector<OfferedResource> resources = {};  ///< for people: also those without a device now
  std::string stands_back = {};  ///< for people: why the kubelet is told of nothing; empty: it is

  /// nullptr: none is called so.
  const OfferedResource* resource(std::string_view name) const;

  /// The first that is one of `ids`, or of whose IOMMU group one of `groups` is. For Kata a device has a
  /// number of its own, and its group tells which it is. nullptr: none.
  const OfferedToKubelet* find(const std::set<std::string>& ids, const std::set<std::uint32_t>& groups) const;
};

/// Errc::malformed_host: it is not such a file.
Result<OfferedDevices> read_offered_devices(std::string_view text);
/// Absent where there is no such file: nobody offers anything.
Result<std::optional<OfferedDevices>> read_offered_devices(const HostFs& host,
                                                           const std::filesystem::path& file = kOfferedFile);

/// The IOMMU group of a function, or of a mediated device; absent: none.
std::optional<std::uint32_t> iommu_group_of(const HostFs& host, const std::string& device);

/// A function, or a mediated device, among what is offered, by its ID or its group. nullptr: it is not.
const OfferedToKubelet* find_device(const HostFs& host, const OfferedDevices& offered,
                                    const std::string& device);

}  // namespace ferry
