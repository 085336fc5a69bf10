// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "common/unique_fd.h"

namespace ferry {

struct DirectoryEvent {
  enum class Kind {
    appeared,  ///< made, or moved in
    vanished,  ///< removed, or moved out
    written,   ///< closed after it was open for writing; only with Contents::told
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
    untold,
    told,        ///< also each `written`
    attributes,  ///< also each `changed`
  };
  using Pause = std::chrono::milliseconds;
  /// Interval of the timer.
  static constexpr Pause kRescan = std::chrono::seconds(30);

  /// `path` may be a /proc/self/fd link. Errors: those of inotify, such as ENOENT.
  static Result<DirectoryWatch> open(const std::filesystem::path& path, Contents contents = Contents::untold,
                                     Pause rescan = kRescan);

  /// Opens `path` below the host's root; links cannot lead out of it.
  static Result<DirectoryWatch> open(const HostFs& host, const std::filesystem::path& path,
                                     Contents contents = Contents::untold);

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

}  // namespace ferry
