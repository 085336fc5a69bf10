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
    written,   ///< closed by somebody who had it open for writing; only where asked for
    changed,   ///< its mode, owner or another attribute, not its content; only where asked for
    lost,      ///< events were dropped: look at everything again
    gone,      ///< the directory itself; nothing more will come
  };
  Kind kind = Kind::lost;
  std::string name;  ///< empty for lost and gone
};

/// Names that come and go in a directory (inotify(7)). Where the kernel has no inotify instance or watch
/// left, which is logged with the limit to raise, a timer takes its place: each time the event is `lost`, and
/// inotify is tried again.
class DirectoryWatch {
 public:
  enum class Contents {
    untold,
    told,        ///< also each `written`
    attributes,  ///< also each `changed`
  };
  using Pause = std::chrono::milliseconds;
  /// Between two events of the timer.
  static constexpr Pause kRescan = std::chrono::seconds(30);

  /// `path` may be a /proc/self/fd link. Errors: what inotify says, ENOENT among them.
  static Result<DirectoryWatch> open(const std::filesystem::path& path, Contents contents = Contents::untold,
                                     Pause rescan = kRescan);

  /// `path` of the host, whose links lead nowhere but there.
  static Result<DirectoryWatch> open(const HostFs& host, const std::filesystem::path& path,
                                     Contents contents = Contents::untold);

  /// Readable when events wait.
  int fd() const { return fd_.get(); }
  /// All that wait, without blocking.
  std::vector<DirectoryEvent> read() const;
  /// Asks for no more, once nobody waits for fd() any longer: what comes yet is `gone`. Whoever has several
  /// to close says so first: the kernel forgets a watch once every reader of its lists has moved on (some 10
  /// ms), for all of them at once, and closing one waits for that.
  void leave() const;

 private:
  DirectoryWatch(UniqueFd fd, int watch) : fd_(std::move(fd)), watch_(watch) {}
  static Result<DirectoryWatch> open_named(const std::filesystem::path& path, const std::string& name,
                                           Contents contents, Pause rescan);
  std::vector<DirectoryEvent> read_timer() const;

  UniqueFd fd_;  // inotify's, or the timer's; the number stays when inotify takes the timer's place
  mutable int watch_ = -1;
  mutable UniqueFd directory_;  // valid: the timer runs
  std::uint32_t mask_ = 0;
  std::string name_;
};

}  // namespace ferry
