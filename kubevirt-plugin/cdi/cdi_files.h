// SPDX-License-Identifier: Apache-2.0
// CDI specifications for Kata. Its shim asks the kubelet for a pod's devices and looks each up as
// RESOURCE=ID, so a CDI kind is a resource and a CDI name is an ID, character for character.
// ABI: Container Device Interface 0.5.0, the first that allows a name that begins with a digit.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "hostfs/host_fs.h"
#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/allocation/snapshot.h"
#include "kubevirt-plugin/discovery/scanned_device.h"

namespace ferry::plugin {

/// The directory of CDI specifications for Kata, relative to the host's root.
inline constexpr const char* kCdiDirectory = "var/run/cdi";

/// The permission bits of a node ("/dev/vfio/8") on the host; absent: they cannot be read.
using NodeMode = std::function<std::optional<mode_t>(const std::string& node)>;

/// The file of one resource. Devices without a node are left out. Empty: no device is left, and there must be
/// no file, since a file without devices is invalid. A node gets its mode on the host, because a container
/// runtime creates a node without `fileMode` with 0666.
std::string cdi_spec(const Resource& resource, const NodeMode& mode_of);

/// A file that could not be brought up to date.
struct CdiFailure {
  std::string resource;  ///< empty: a file that should be gone
  Error error;
};

/// The CDI files of all resources for Kata. Runtimes may read them at any time, so each file is replaced as a
/// whole.
class CdiFiles {
 public:
  /// `directory`: relative to the host's root. `host` must outlive this object.
  CdiFiles(HostFs& host, std::filesystem::path directory) : host_(host), directory_(std::move(directory)) {}

  /// Brings the files up to date with `resources`: writes files that differ, and removes Ferry's files, also
  /// an earlier process's, of resources without devices. Files of `held`, resources of which pods have
  /// devices, and files of other programs stay. The update goes on after a failure.
  std::vector<CdiFailure> update(std::span<const Resource> resources, const std::set<std::string>& held = {});
  /// The resources of Ferry's files there, also those of an earlier process.
  std::set<std::string> resources() const;

 private:
  std::vector<std::string> own_files() const;
  /// Empty: the file cannot be read or has no kind.
  std::string kind_of(const std::string& file) const;

  HostFs& host_;
  const std::filesystem::path directory_;
};

// The content of the CDI specifications from scan to scan: devices that are advertised for Kata, and devices
// that a pod still has. Kata looks a device up whenever it creates a sandbox of the pod, so also after the
// device has become unavailable.

class CdiEntries {
 public:
  using Key = std::pair<std::string, std::string>;  ///< resource, ID

  /// Takes a scan: the devices found, and those that are advertised. Devices that are no longer advertised
  /// stay with their nodes until drop_released(). So do devices that were only found, since an earlier plugin
  /// process may have allocated them.
  void replace(std::span<const Resource> found, std::span<const Resource> advertised);

  /// Drops devices that are neither advertised nor allocated. True: there was one.
  bool drop_released(const Snapshot& snapshot);

  /// Only resources for Kata, which CdiFiles::update() needs.
  const std::vector<Resource>& resources() const { return resources_; }

 private:
  std::vector<Resource> resources_;
  std::set<Key> advertised_;
};

/// Keeps Kata's CDI files in step with scans and allocations. Failures are logged. The parameter
/// `allocations_known` is PodResourcesMonitor::known(): until then, a pod may have any device.
class CdiPublisher {
 public:
  /// `directory`: relative to the host's root. `host` and `core` must outlive this object.
  CdiPublisher(HostFs& host, const std::filesystem::path& directory, AllocationCore& core)
      : core_(core), files_(host, directory) {}

  /// Takes the resources for Kata of an earlier process, perhaps under other names. `listed`: those of its
  /// advertised.json; its CDI files have others.
  void begin(std::set<std::string> listed);

  /// Takes a scan: the devices found, and those that are advertised. Devices that Kata would not find, since
  /// their file cannot be written, get a problem. False: not all files could be written.
  bool replace(std::span<const Resource> found, std::vector<Resource>& advertised, bool allocations_known);

  /// Drops the entries of devices that are neither advertised nor allocated, also those of an earlier
  /// process. A pod that has a device may need its entry again. False: that failed, and a later call tries
  /// again.
  bool drop_released(bool allocations_known);

 private:
  std::set<std::string> former_in_use(bool allocations_known) const;

  AllocationCore& core_;
  CdiFiles files_;
  CdiEntries entries_;
  std::set<std::string> former_;  // an earlier process's resources, as long as pods may have their devices
};

}  // namespace ferry::plugin
