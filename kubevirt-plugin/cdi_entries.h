// SPDX-License-Identifier: Apache-2.0
// What the CDI specifications say, from scan to scan: what is offered to Kata, and what a pod still has. Kata
// looks a device up whenever it makes a pod's sandbox, a second one too, and so after the device has been
// withdrawn.
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

  /// A scan: what was found, and what of it is offered. What is offered no more stays until drop(), with the
  /// nodes that it had, and so does what was found and is not offered: a predecessor may have given it out.
  void replace(std::span<const Resource> found, std::span<const Resource> offered);

  /// Drops what is neither offered nor allocated. True: there was something.
  bool drop_released(const Snapshot& snapshot);

  /// For CdiFiles::update(): resources for Kata alone.
  const std::vector<Resource>& resources() const { return resources_; }

 private:
  std::vector<Resource> resources_;
  std::set<Key> offered_;
};

}  // namespace ferry
