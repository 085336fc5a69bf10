// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ferry::test {

/// The kernel has none left for this process, as long as this lives.
enum class Inotify { instance, watch };

/// Plays that limit: the calls of inotify(7) fail as the kernel has them fail then. One at a time.
class NoMoreOf {
 public:
  explicit NoMoreOf(Inotify what);
  NoMoreOf(const NoMoreOf&) = delete;
  NoMoreOf& operator=(const NoMoreOf&) = delete;
  NoMoreOf(NoMoreOf&&) = delete;
  NoMoreOf& operator=(NoMoreOf&&) = delete;
  ~NoMoreOf();
};

}  // namespace ferry::test
