// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "common/event_loop.h"
#include "hostfs/folder_watch.h"
#include "hostfs/host_fs.h"
#include "kata-manager/controller/kata_keeper.h"

namespace ferry::kata {

/// Runs a KataKeeper's rounds: at the start; after the container runtime's socket is made anew, which means
/// a start; after its wanted file is written, if it follows one; and from time to time, because a reload
/// causes no event. Each round blocks the loop's thread.
class ReadyWatch {
 public:
  struct Pauses {
    std::chrono::milliseconds settling{500};     ///< from an event to the round
    std::chrono::milliseconds first{1'000};      ///< without an answer; doubles up to `longest`
    std::chrono::milliseconds longest{300'000};  ///< also after each answer
  };

  /// All arguments must outlive this object. `socket`: a path of the host; `wanted`: also watch the wanted
  /// file.
  ReadyWatch(EventLoop& loop, const HostFs& host, KataKeeper& keeper, const std::filesystem::path& socket,
             bool wanted, Pauses pauses);
  ReadyWatch(const ReadyWatch&) = delete;
  ReadyWatch& operator=(const ReadyWatch&) = delete;
  ReadyWatch(ReadyWatch&&) = delete;
  ReadyWatch& operator=(ReadyWatch&&) = delete;
  ~ReadyWatch();

 private:
  void look_in(std::chrono::milliseconds pause);
  void look();
  Result<> watch();

  EventLoop& loop_;
  const HostFs& host_;
  KataKeeper& keeper_;
  const std::filesystem::path socket_folder_;
  const bool wanted_;
  const Pauses pauses_;
  std::chrono::milliseconds pause_;  ///< before the round after the next failed one
  FolderWatch files_;
  EventLoop::Timer next_;
};

}  // namespace ferry::kata
