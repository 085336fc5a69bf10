// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "common/event_loop.h"
#include "common/folder_watch.h"
#include "common/host_fs.h"
#include "kata-manager/kata_keeper.h"

namespace ferry {

/// Has a KataKeeper look: at the beginning, when the container runtime's socket is made anew, which is its
/// start, when its wanted file is written, where it obeys one, and now and then, since nobody tells of a
/// reload. One thread, the loop's, which each look holds up until it is done.
class ReadyWatch {
 public:
  struct Pauses {
    std::chrono::milliseconds settling{500};     ///< from a sign of news to the look
    std::chrono::milliseconds first{1'000};      ///< while it does not answer, doubled up to the next
    std::chrono::milliseconds longest{300'000};  ///< and from each answer to the next look
  };

  /// All must outlive this. `socket` as the host's programs name it; `wanted`: the wanted file is watched.
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
  std::chrono::milliseconds pause_;  ///< to the next look, if this one is not answered
  FolderWatch files_;
  EventLoop::Timer next_;
};

}  // namespace ferry
