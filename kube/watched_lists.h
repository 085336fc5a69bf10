// SPDX-License-Identifier: Apache-2.0
// Lists of objects that watches keep up to date, for a program that shows them to a person.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/pinned.h"
#include "common/result.h"
#include "kube/api_path.h"
#include "kube/api_transport.h"
#include "kube/backoff.h"
#include "kube/object_watch.h"
#include "kube/timers.h"

namespace ferry::kube {

/// A list to keep up to date.
struct WatchedList {
  Selection selection;
  ObjectWatch::Kept kept = {};
};

/// Holds one ObjectWatch for each list. Only one thread may use it.
class WatchedLists : Pinned {
 public:
  /// Changes within this time are reported together.
  static constexpr std::chrono::milliseconds kTogether{200};

  /// `changed` runs once each list is there or has failed, and then after each change of a list or of its
  /// error. It runs in a timer of its own, and must not destroy this object. Transport and timers must
  /// outlive this.
  WatchedLists(ApiTransport& transport, Timers& timers, const Random& random,
               const std::vector<WatchedList>& lists, std::function<void()> changed);
  ~WatchedLists();

  /// Errc::usage: a selection has a name that no object can have.
  Result<> begin();

  /// A List object with the parts that are kept, in the order of their names. Errors: that of the watch,
  /// after which the list may be old; Errc::not_found: no watched list has this selection, or it is not there
  /// yet.
  Result<nlohmann::json> list(const Selection& selection) const;
  /// The error of a list that can be read and not watched, or that the role does not permit to read; absent:
  /// there is none. A role may forbid a watch, and a proxy may refuse it, or end each one before it brings
  /// anything.
  std::optional<Error> unwatchable() const;

 private:
  struct Entry;
  void schedule();

  Timers& timers_;
  const std::function<void()> changed_;
  std::vector<std::unique_ptr<Entry>> entries_;
  OwnedTimer timer_;
};

}  // namespace ferry::kube
