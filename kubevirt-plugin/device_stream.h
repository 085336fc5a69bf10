// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "kubevirt-plugin/snapshot.h"

namespace ferry {

/// One listener's queue of lists. Since each list replaces the one before, only the newest is kept: a
/// listener that does not read costs one list. Any thread may call.
class DeviceStream {
 public:
  explicit DeviceStream(std::function<void()> wake) : wake_(std::move(wake)) {}

  /// The newest list not taken yet; nullptr when there is none.
  std::shared_ptr<const ListedResource> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(next_, nullptr);
  }

  /// For the core: lists come in order because it puts them under its own lock, and wakes after it.
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
