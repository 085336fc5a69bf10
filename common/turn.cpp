// SPDX-License-Identifier: Apache-2.0
#include "common/turn.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

namespace ferry {
namespace {

using Clock = EventLoop::Clock;

constexpr Clock::duration kFirstPause = std::chrono::milliseconds(1);
constexpr Clock::duration kLongestPause = std::chrono::seconds(1);

}  // namespace

Turn::Turn(EventLoop& loop, HostFs& host, std::filesystem::path file, std::function<void(OnlyOne)> ours)
    : loop_(loop), host_(host), file_(std::move(file)), ours_(std::move(ours)), pause_(kFirstPause) {
  try_in({});
}

Turn::~Turn() {
  loop_.cancel(timer_);
  if (watch_) loop_.forget(watch_->fd());
}

void Turn::watch() {
  auto opened = DirectoryWatch::open(host_, file_.parent_path(), DirectoryWatch::Contents::told);
  if (!opened) return;  // without events the lock is tried every second
  watch_.emplace(std::move(*opened));
  loop_.watch(watch_->fd(), [this] {
    const auto events = watch_->read();
    const auto gone = [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; };
    const auto ours = [this](const DirectoryEvent& event) {
      return event.name.empty() || event.name == file_.filename();
    };
    if (std::ranges::none_of(events, ours)) return;
    if (std::ranges::any_of(events, gone)) {
      loop_.forget(watch_->fd());
      watch_.reset();
    }
    pause_ = kFirstPause;
    try_now();
  });
}

void Turn::try_now() {
  loop_.cancel(timer_);
  const bool moved = candidate_ && !candidate_->is_at(host_, file_).value_or(true);
  if (moved && watch_) {  // the directory may have changed too; open files keep its events away
    loop_.forget(watch_->fd());
    watch_.reset();
  }
  if (!watch_) watch();  // before the try, so that no event is missed
  if (!candidate_ || moved) {
    auto opened = OnlyOne::open(host_, file_);
    candidate_.reset();
    if (opened) {
      candidate_.emplace(std::move(*opened));
    } else if (told_.insert(opened.error().message).second) {
      spdlog::error("{}", opened.error().message);
    }
  }
  const auto taken = candidate_ ? candidate_->take(file_) : Result<bool>(false);
  if (!taken && told_.insert(taken.error().message).second) spdlog::error("{}", taken.error().message);
  if (!taken.value_or(false)) {
    try_in(pause_);
    pause_ = std::min(2 * pause_, kLongestPause);
    return;
  }
  if (watch_) loop_.forget(watch_->fd());
  watch_.reset();
  const auto ours = ours_;  // ours() may destroy this
  ours(std::move(*candidate_));
}

void Turn::try_in(Clock::duration pause) {
  timer_ = loop_.at(Clock::now() + pause, [this] { try_now(); });
}

}  // namespace ferry
