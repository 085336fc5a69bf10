// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <sys/inotify.h>
#include <unistd.h>
#include <utility>

#include "common/unique_fd.h"

namespace ferry::test {

/// Counts how often a folder of the host is listed.
class Listings {
 public:
  explicit Listings(const std::filesystem::path& folder)
      : inotify_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
        watch_(::inotify_add_watch(inotify_.get(), folder.c_str(),
                                   IN_OPEN | IN_ACCESS | IN_CLOSE_NOWRITE | IN_ONLYDIR)) {}
  bool work() const { return watch_ >= 0; }
  /// Since the last call. An open of the path alone has no IN_ACCESS. The kernel merges events of a kind that
  /// follow each other.
  unsigned count() {
    unsigned out = 0;
    bool is_read = false;
    alignas(inotify_event) std::array<std::byte, 4096> buffer{};
    while (true) {
      const ssize_t size = ::read(inotify_.get(), buffer.data(), buffer.size());
      if (size <= 0) return out;
      for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
        const auto* const event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
        at += sizeof(inotify_event) + event->len;
        if (event->len > 0) continue;  // an entry's
        if ((event->mask & IN_ACCESS) != 0) is_read = true;
        if ((event->mask & IN_CLOSE_NOWRITE) != 0 && std::exchange(is_read, false)) ++out;
      }
    }
  }

 private:
  UniqueFd inotify_;
  int watch_;
};

}  // namespace ferry::test
