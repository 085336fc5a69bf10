// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "hostfs/host_fs.h"
#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/cdi/cdi_files.h"
#include "kubevirt-plugin/discovery/advertised_device.h"

namespace ferry::plugin {

/// Keeps Kata's CDI files in step with scans and allocations. Failures are logged. The parameter
/// `allocations_known` is PodResourcesMonitor::known(): until then, a pod may have any device.
class CdiPublisher {
 public:
  /// `directory`: relative to the host's root. `host` and `core` must outlive this object.
  CdiPublisher(HostFs& host, const std::filesystem::path& directory, AllocationCore& core)
      : core_(core), files_(host, directory), watch_(host, directory) {}

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
  void check_files();

  AllocationCore& core_;
  CdiFiles files_;
  CdiEntries entries_;
  CdiWatch watch_;
  std::vector<CdiFault> faults_;
  std::set<std::string> former_;  // an earlier process's resources, as long as pods may have their devices
};

}  // namespace ferry::plugin
