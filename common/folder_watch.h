// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>

#include "common/directory_watch.h"
#include "common/event_loop.h"
#include "common/result.h"

namespace ferry {

/// Reports writes in folders, by their paths: a folder that is replaced or removed is watched again once it
/// is back. Belongs to the loop's thread.
class FolderWatch {
 public:
  /// Makes a folder, so that the first file in it is reported.
  using Make = std::function<Result<>()>;

  /// `changed` runs when a file in a folder may have changed. The loop must outlive this.
  FolderWatch(EventLoop& loop, EventLoop::Job changed,
              std::chrono::milliseconds try_again = std::chrono::seconds(5));
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;
  FolderWatch(FolderWatch&&) = delete;
  FolderWatch& operator=(FolderWatch&&) = delete;
  ~FolderWatch();

  /// A folder that is already watched stays watched once. `make` runs before each attempt; without it another
  /// program makes the folder. Errors: the folder cannot be made or watched now; it is not tried again. If a
  /// watched folder goes away, failures are logged and tried again.
  Result<> add(const std::filesystem::path& folder, const Make& make = {});

 private:
  void told(const std::filesystem::path& folder, const Make& make);
  void add_again(const std::filesystem::path& folder, const Make& make);

  EventLoop& loop_;
  const EventLoop::Job changed_;
  const std::chrono::milliseconds try_again_;
  std::map<std::filesystem::path, DirectoryWatch> watches_;
  std::map<std::filesystem::path, EventLoop::Timer> again_;
};

}  // namespace ferry
