// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "common/pinned.h"

namespace ferry::cli {

/// Says on standard error what a person waits for, as long as this object lives: after two seconds, and then
/// every ten. Nothing is said where standard error is no terminal, and in shorter waits.
///
///   reading the cluster: 2 s so far
class WaitNote : Pinned {
 public:
  /// `what` is an action: "reading the cluster". A terminal that is stopped by Ctrl-S loses the notes of that
  /// time, and does not hold up the end of this object.
  explicit WaitNote(std::string what, std::chrono::milliseconds unit = std::chrono::seconds(1));
  /// Says it in the given way, on a terminal or not. A test has a shorter `unit` than a second.
  WaitNote(std::string what, std::function<void(const std::string& line)> say,
           std::chrono::milliseconds unit);

 private:
  std::optional<std::jthread> thread_;  ///< absent: nothing will be said, or no thread can be started
};

}  // namespace ferry::cli
