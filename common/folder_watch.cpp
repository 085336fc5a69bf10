// SPDX-License-Identifier: Apache-2.0
#include "common/folder_watch.h"

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

namespace ferry {

namespace fs = std::filesystem;

FolderWatch::FolderWatch(EventLoop& loop, EventLoop::Job changed, std::chrono::milliseconds try_again)
    : loop_(loop), changed_(std::move(changed)), try_again_(try_again) {}

FolderWatch::~FolderWatch() {
  for (const auto& [folder, timer] : again_) loop_.cancel(timer);
  for (const auto& [folder, watch] : watches_) loop_.forget(watch.fd());
}

Result<> FolderWatch::add(const fs::path& folder, const Make& make) {
  if (watches_.contains(folder)) return {};  // another file in the same folder
  if (make) {
    if (auto made = make(); !made) return made;
  }
  // Contents::told: people may write into a file instead of replacing it.
  auto opened = DirectoryWatch::open(folder, DirectoryWatch::Contents::told);
  if (!opened) return fail(std::move(opened).error());
  const int fd = opened->fd();
  watches_.insert_or_assign(folder, std::move(*opened));
  loop_.watch(fd, [this, folder, make] { told(folder, make); });
  return {};
}

void FolderWatch::told(const fs::path& folder, const Make& make) {
  const auto watch = watches_.find(folder);
  if (watch == watches_.end()) return;
  const auto events = watch->second.read();
  const bool gone = std::ranges::any_of(
      events, [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; });
  if (gone) {
    loop_.forget(watch->second.fd());
    watches_.erase(watch);
    add_again(folder, make);
  }
  changed_();
}

void FolderWatch::add_again(const fs::path& folder, const Make& make) {
  auto added = add(folder, make);
  if (added) return;
  spdlog::warn("{}", added.error().message);
  again_[folder] = loop_.at(EventLoop::Clock::now() + try_again_, [this, folder, make] {
    add_again(folder, make);
    changed_();  // writes may have been missed meanwhile
  });
}

}  // namespace ferry
