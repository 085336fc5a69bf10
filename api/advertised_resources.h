// SPDX-License-Identifier: Apache-2.0
// The resources advertised to the kubelet (kAdvertisedFile). The device plugin writes the file; hostd, the
// agent, people and the next plugin process read it.
//
//   {"version": 2, "generation": 7, "pid": 4711, "state_generation": 17, "resources": [
//     {"name": "nvidia.com/GH100_H100_SXM5_80GB", "env": "PCI_RESOURCE_NVIDIA_COM_GH100_H100_SXM5_80GB",
//      "registered": true, "devices": [
//       {"id": "0000:17:00.0", "healthy": false, "reason": "...", "numa_node": 0, "iommu_group": 42,
//        "allocated": false, "awaits_release": false, "held_with_group": false, "used_since": 3 | null,
//        "pod": null}]}],
//    "not_advertised": [{"id": "0000:65:00.0", "reason": "..."}],
//    "standby": "NVIDIA's sandbox-device-plugin serves this node" | null,
//    "fatal_errors": [{"function": "0000:17:00.0", "since": 2, "binding": 31207}]}
//
// A resource of places has, besides `devices`, the key `places`:
//   [{"id": "place-0000:17:00.1", "healthy": true, "reason": ""}]
// A place has no IOMMU group, and its allocation gives a pod no device.
//
// `devices` also has devices that a pod has and that the kubelet's list lacks, as Unhealthy: a process that
// has just started does not advertise unavailable devices. The file outlives its writer. The next process
// takes over its allocations, since the kubelet reports a pod only a little after its Allocate. A reader sees
// by the lock kPluginLiveness whether a plugin serves now. New versions of Ferry only add keys; another
// change raises `version`.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "vfio/judgement/fatal_errors.h"

namespace ferry::api {

struct AdvertisedDevice {
  std::string resource = {};
  std::string id;  ///< an address, a UUID, or for Kata a number
  std::uint32_t iommu_group = 0;
  std::optional<int> numa_node = {};
  bool allocated = false;
  bool healthy = true;
  std::string reason = {};  ///< why it is not healthy; empty: it is
  /// It is not healthy only until its release, its group's, or its sanitizing; or it is not healthy and still
  /// allocated.
  bool awaits_release = false;
  bool held_with_group = false;  ///< not healthy only because a pod has another device of its IOMMU group
  /// hostd's SanitizeStatus::count when a pod has released it. The device stays Unhealthy until hostd has
  /// another count. Absent: no pod has had it since hostd has sanitized it, or hostd does not sanitize it.
  std::optional<std::uint64_t> used_since = {};
  std::string pod = {};  ///< "namespace/name" of the pod that has it; empty: not known
  bool operator==(const AdvertisedDevice&) const = default;
};

struct AdvertisedPlace {
  std::string id;
  bool healthy = true;
  std::string reason = {};
};

struct AdvertisedResource {
  std::string name;
  std::string env = {};    ///< variable that names its devices to a pod; empty for Kata
  bool registered = true;  ///< the kubelet read its list, when the file was written
  std::optional<std::vector<AdvertisedPlace>> places = {};  ///< absent: it has devices
};

struct NotAdvertised {
  std::string id;
  std::string reason;
  bool by_kind = false;  ///< the device is well, but its kind is not advertised; not in the file
  bool operator==(const NotAdvertised&) const = default;
};

using vfio::FatalErrorsOf;

struct AdvertisedResources {
  std::uint64_t generation = 0;
  int pid = 0;  ///< the writer, in its own PID namespace
  /// Generation of the status.json whose unavailable devices the plugin has followed. 0: there is none, or
  /// the plugin does not know yet which devices are allocated. An unavailable device that is listed all the
  /// same is a pod's.
  std::uint64_t state_generation = 0;
  std::vector<AdvertisedDevice> devices = {};      ///< in order of the resources
  std::vector<AdvertisedResource> resources = {};  ///< also those without a device now
  std::vector<NotAdvertised> not_advertised = {};
  std::vector<FatalErrorsOf> fatal_errors = {};
  std::string standby = {};  ///< why no kubelet reads these lists; empty: the plugin serves

  /// nullptr: no resource has this name.
  const AdvertisedResource* resource(std::string_view name) const;

  /// The first device whose ID is in `ids` or whose IOMMU group is in `groups`. The group is needed for Kata,
  /// which gives a device a number as its ID. nullptr: there is none.
  const AdvertisedDevice* find(const std::set<std::string>& ids, const std::set<std::uint32_t>& groups) const;
};

/// The file's content. Bytes that are not UTF-8 are replaced; a driver's text may have such.
std::string advertised_resources_text(const AdvertisedResources& advertised);

/// Unknown keys are ignored, and keys that a reader can do without may be absent. Errc::malformed_host: not
/// such a file, another version, or a key that is missing or has a wrong value; the message has the place.
Result<AdvertisedResources> read_advertised_resources(std::string_view text);

/// Reads, of any version, only facts that must not get lost between two processes: the devices that are
/// allocated or have `used_since`, the resources with their variables, and fatal errors. An entry of another
/// form is left out, and the others count. Errc::malformed_host: the text is not JSON.
Result<AdvertisedResources> read_allocations(std::string_view text);

}  // namespace ferry::api
