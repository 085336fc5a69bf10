// SPDX-License-Identifier: Apache-2.0
// Calls that may never return, awaited with a deadline.
//
// For reads whose wait in the kernel a signal can end: a late read keeps its thread, which ends with the
// process. A wait that no signal reaches (a device's lock) would keep the process too: such reads go through
// the host writer (host_writer.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "common/pinned.h"

namespace ferry {

class BoundedCaller : Pinned {
 public:
  explicit BoundedCaller(std::chrono::milliseconds patience) : patience_(patience) {}
  ~BoundedCaller();

  /// Returns the result of `job`; absent: late, or no thread could be started. A late job goes on alone and
  /// may outlive this object and the caller: it must own all that it uses, and not throw. Its captures are
  /// destroyed at its end.
  template <typename T>
  std::optional<T> call(std::function<T()> job) {
    const auto result = std::make_shared<std::optional<T>>();
    if (!run([result, job = std::move(job)] { *result = job(); })) return std::nullopt;
    return std::move(*result);
  }

 private:
  struct Desk;
  bool run(std::function<void()> job);

  std::chrono::milliseconds patience_;
  std::shared_ptr<Desk> desk_;  // shared with the worker thread
};

}  // namespace ferry
