// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <map>

#include "common/directory_watch.h"
#include "common/event_loop.h"
#include "common/result.h"

namespace ferry {

/// Hears of what is written in folders, whichever are at their places: one that is replaced or removed is
/// watched anew once it is there. One thread, the loop's.
class FolderWatch {
 public:
  enum class Missing {
    awaited,  ///< somebody else makes it
    made,     ///< by us, so that whoever writes into it first is heard
  };

  /// `changed` runs when a file in one of them may be another. The loop must outlive this.
  FolderWatch(EventLoop& loop, EventLoop::Job changed,
              std::chrono::milliseconds try_again = std::chrono::seconds(5));
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;
  FolderWatch(FolderWatch&&) = delete;
  FolderWatch& operator=(FolderWatch&&) = delete;
  ~FolderWatch();

  /// What is watched already is watched once. Errors: it can be neither made nor watched now, and is not
  /// watched later either. Once it has been, that is logged and tried again.
  Result<> add(const std::filesystem::path& folder, Missing missing);

 private:
  void told(const std::filesystem::path& folder, Missing missing);
  void add_again(const std::filesystem::path& folder, Missing missing);

  EventLoop& loop_;
  const EventLoop::Job changed_;
  const std::chrono::milliseconds try_again_;
  std::map<std::filesystem::path, DirectoryWatch> watches_;
  std::map<std::filesystem::path, EventLoop::Timer> again_;
};

}  // namespace ferry
