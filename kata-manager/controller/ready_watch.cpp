// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/controller/ready_watch.h"

#include <algorithm>

namespace ferry::kata {

ReadyWatch::ReadyWatch(EventLoop& loop, const HostFs& host, KataKeeper& keeper,
                       const std::filesystem::path& socket, bool wanted, Pauses pauses)
    : loop_(loop),
      host_(host),
      keeper_(keeper),
      socket_folder_(host.root() / socket.relative_path().parent_path()),
      wanted_(wanted),
      pauses_(pauses),
      pause_(pauses.first),
      files_(
          loop, [this] { look_in(pauses_.settling); }, pauses.first) {
  look_in(std::chrono::milliseconds(0));
}

ReadyWatch::~ReadyWatch() {
  loop_.cancel(next_);
}

void ReadyWatch::look_in(std::chrono::milliseconds pause) {
  loop_.cancel(next_);
  next_ = loop_.at(EventLoop::Clock::now() + pause, [this] { look(); });
}

// A folder to watch may not exist yet.
Result<> ReadyWatch::watch() {
  auto watched = files_.add(socket_folder_);
  if (!wanted_) return watched;
  const auto folder = std::filesystem::path(kWantedClassesFile).parent_path();
  auto wanted = files_.add(host_.root() / folder, [this, folder] { return host_.make_directory(folder); });
  return watched ? wanted : watched;
}

void ReadyWatch::look() {
  // Watches first, so that no event is lost before the round.
  const auto watched = watch();
  const auto round = keeper_.round(EventLoop::Clock::now());
  std::chrono::milliseconds pause = pauses_.longest;
  if (round.answered && watched) {
    pause_ = pauses_.first;
  } else {
    pause = pause_;
    pause_ = std::min(2 * pause_, pauses_.longest);
  }
  if (const auto again = round.again) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*again - EventLoop::Clock::now());
    pause = std::clamp(left, std::chrono::milliseconds(0), pause);
  }
  look_in(pause);
}

}  // namespace ferry::kata
