// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "common/directory_watch.h"
#include "common/event_loop.h"
#include "common/host_fs.h"
#include "common/presence.h"

namespace ferry {

/// Waits to become the OnlyOne of a file. A released lock raises no event, but its holder also closes the
/// file, which inotify reports. Then the lock is tried with a growing pause, and at least every second for as
/// long as it takes. Belongs to the loop's thread.
class Turn {
 public:
  /// `ours` is called in the loop, once, and may destroy this. Loop and host must outlive this.
  Turn(EventLoop& loop, HostFs& host, std::filesystem::path file, std::function<void(OnlyOne)> ours);
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Turn(Turn&&) = delete;
  Turn& operator=(Turn&&) = delete;
  ~Turn();

 private:
  void try_now();
  void try_in(EventLoop::Clock::duration pause);
  void watch();

  EventLoop& loop_;
  HostFs& host_;
  const std::filesystem::path file_;
  const std::function<void(OnlyOne)> ours_;
  std::optional<DirectoryWatch> watch_;
  std::optional<OnlyOne> candidate_;  // opened, not locked; closing it would look like the holder's end
  EventLoop::Timer timer_;
  EventLoop::Clock::duration pause_;
  std::set<std::string> told_;
};

}  // namespace ferry
