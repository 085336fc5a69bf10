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

/// Hears of what is written in folders, whichever are at their places: one that is replaced or removed is
/// watched anew once it is there. One thread, the loop's.
class FolderWatch {
 public:
  /// Makes a folder, so that the first file in it is heard of.
  using Make = std::function<Result<>()>;

  /// `changed` runs when a file in one of them may be another. The loop must outlive this.
  FolderWatch(EventLoop& loop, EventLoop::Job changed,
              std::chrono::milliseconds try_again = std::chrono::seconds(5));
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;
  FolderWatch(FolderWatch&&) = delete;
  FolderWatch& operator=(FolderWatch&&) = delete;
  ~FolderWatch();

  /// A folder that is watched already is watched once. `make` is called before each attempt; without it
  /// another program makes the folder. Errors: it can be neither made nor watched now, and is not watched
  /// later either. Once it has been, that is logged and tried again.
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
