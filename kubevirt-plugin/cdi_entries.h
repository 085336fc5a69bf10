// SPDX-License-Identifier: Apache-2.0
// The content of the CDI specifications from scan to scan: devices that are advertised for Kata, and devices
// that a pod still has. Kata looks a device up whenever it creates a sandbox of the pod, so also after the
// device has been withdrawn.
#pragma once

#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kubevirt-plugin/offered_device.h"
#include "kubevirt-plugin/snapshot.h"

namespace ferry {

class CdiEntries {
 public:
  using Key = std::pair<std::string, std::string>;  ///< resource, ID

  /// Takes a scan: the devices found, and those that are advertised. Devices that are no longer advertised
  /// stay with their nodes until drop_released(). So do devices that were only found, since an earlier plugin
  /// process may have allocated them.
  void replace(std::span<const Resource> found, std::span<const Resource> offered);

  /// Drops devices that are neither advertised nor allocated. True: there was one.
  bool drop_released(const Snapshot& snapshot);

  /// For CdiFiles::update(): only resources for Kata.
  const std::vector<Resource>& resources() const { return resources_; }

 private:
  std::vector<Resource> resources_;
  std::set<Key> offered_;
};

}  // namespace ferry
