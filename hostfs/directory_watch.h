// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "hostfs/host_fs.h"

namespace ferry {

struct DirectoryEvent {
  enum class Kind {
    appeared,  ///< made, or moved in
    vanished,  ///< removed, or moved out
    written,   ///< closed after it was open for writing; only with Contents::written
    changed,   ///< its mode, owner or another attribute, not its content; only with Contents::attributes
    lost,      ///< events were dropped: read everything again
    gone,      ///< the directory itself is gone; no more events
  };
  Kind kind = Kind::lost;
  std::string name;  ///< empty for lost and gone
};

/// Names that appear and vanish in a directory (inotify(7)). If the kernel's inotify limit is reached, a
/// warning names the sysctl to raise. A timer then replaces inotify: each expiry is a `lost` event and a new
/// try.
class DirectoryWatch {
 public:
  enum class Contents {
    names,
    written,     ///< also each `written`
    attributes,  ///< also each `changed`
  };
  using Pause = std::chrono::milliseconds;
  /// Interval of the timer.
  static constexpr Pause kRescan = std::chrono::seconds(30);

  /// `path` may be a /proc/self/fd link. Errors: those of inotify, such as ENOENT.
  static Result<DirectoryWatch> open(const std::filesystem::path& path, Contents contents = Contents::names,
                                     Pause rescan = kRescan);

  /// Opens `path` below the host's root; links cannot lead out of it.
  static Result<DirectoryWatch> open(const HostFs& host, const std::filesystem::path& path,
                                     Contents contents = Contents::names);

  /// Readable when events wait.
  int fd() const { return fd_.get(); }
  /// Returns the waiting events without blocking.
  std::vector<DirectoryEvent> read() const;
  /// Stops the watch, once the caller no longer polls fd(); later events are `gone`. Call leave() on several
  /// watches before closing any: the kernel frees them together after a grace period (some 10 ms). close(2)
  /// waits for that.
  void leave() const;

 private:
  DirectoryWatch(UniqueFd fd, int watch) : fd_(std::move(fd)), watch_(watch) {}
  static Result<DirectoryWatch> open_named(const std::filesystem::path& path, const std::string& name,
                                           Contents contents, Pause rescan);
  std::vector<DirectoryEvent> read_timer() const;

  UniqueFd fd_;  // inotify or the timer; the number stays when inotify replaces the timer
  mutable int watch_ = -1;
  mutable UniqueFd directory_;  // valid while the timer runs
  std::uint32_t mask_ = 0;
  std::string name_;
};

/// Reports writes in folders, by their paths: a folder that is replaced or removed is watched again once it
/// is back. Belongs to the loop's thread.
class FolderWatch : Pinned {
 public:
  /// Makes a folder, so that the first file in it is reported.
  using Make = std::function<Result<>()>;

  /// `changed` runs when a file in a folder may have changed. The loop must outlive this.
  FolderWatch(EventLoop& loop, EventLoop::Job changed,
              std::chrono::milliseconds try_again = std::chrono::seconds(5));
  ~FolderWatch();

  /// A folder that is already watched stays watched once. `make` runs before each attempt; without it another
  /// program makes the folder. Errors: the folder cannot be made or watched now; it is not tried again. If a
  /// watched folder goes away, failures are logged and tried again.
  Result<> add(const std::filesystem::path& folder, const Make& make = {});

 private:
  void read_events(const std::filesystem::path& folder, const Make& make);
  void add_again(const std::filesystem::path& folder, const Make& make);

  EventLoop& loop_;
  const EventLoop::Job changed_;
  const std::chrono::milliseconds try_again_;
  std::map<std::filesystem::path, DirectoryWatch> watches_;
  std::map<std::filesystem::path, EventLoop::Timer> again_;
};

}  // namespace ferry
