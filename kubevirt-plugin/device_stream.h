// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "kubevirt-plugin/snapshot.h"

namespace ferry {

/// The queue of lists for one listener. Each list replaces the one before, so only the newest is kept, and a
/// listener that does not read costs one list. Any thread may call.
class DeviceStream {
 public:
  explicit DeviceStream(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// The newest list not taken yet; nullptr: there is none.
  std::shared_ptr<const ListedResource> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(next_, nullptr);
  }

  /// For AllocationCore. Its own lock keeps the lists in order, and it wakes the listener after unlocking.
  void put(std::shared_ptr<const ListedResource> list) {
    const std::scoped_lock lock(mutex_);
    next_ = std::move(list);
  }
  void wake() const {
    if (wake_) wake_();
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::shared_ptr<const ListedResource> next_;
};

}  // namespace ferry
