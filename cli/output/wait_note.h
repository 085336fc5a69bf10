// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace ferry::cli {

/// Says on standard error what a person waits for, as long as this object lives: after two seconds, and then
/// every ten. Nothing is said where standard error is no terminal, and in shorter waits.
///
///   reading the cluster: 2 s so far
class WaitNote {
 public:
  /// `what` is an action: "reading the cluster".
  explicit WaitNote(std::string what);
  /// Says it in the given way, and at times of `unit` instead of seconds.
  WaitNote(std::string what, std::function<void(const std::string& line)> say,
           std::chrono::milliseconds unit);
  WaitNote(const WaitNote&) = delete;
  WaitNote& operator=(const WaitNote&) = delete;
  WaitNote(WaitNote&&) = delete;
  WaitNote& operator=(WaitNote&&) = delete;
  ~WaitNote() = default;

 private:
  std::optional<std::jthread> thread_;  ///< absent: nothing will be said
};

}  // namespace ferry::cli
