// SPDX-License-Identifier: Apache-2.0
#include "host/watched_files.h"

#include <algorithm>

namespace ferry::host {
namespace {

namespace fs = std::filesystem;

// The symbolic link that the kubelet switches when a ConfigMap changes.
constexpr const char* kConfigMapsData = "..data";

}  // namespace

/// Adds a file and, if it is a link, the link's targets, all below the host's root.
void WatchedFiles::add_policy(Names& names, fs::path file) const {
  constexpr int kMostLinks = 8;
  for (int i = 0; i < kMostLinks; ++i) {
    names[file.parent_path()].insert(file.filename().string());
    const auto target = host_.link_target(file);
    if (!target) return;
    const fs::path to = *target;
    file = (to.is_absolute() ? to.relative_path() : file.parent_path() / to).lexically_normal();
  }
}

bool WatchedFiles::watch() {
  Names names;
  for (const fs::path& file : files_) names[file.parent_path()].insert(file.filename().string());
  if (policy_) {
    add_policy(names, policy_->relative_path());
    names[policy_->relative_path().parent_path()].insert(kConfigMapsData);
  }
  std::erase_if(folders_, [&](const auto& known) {
    if (names.contains(known.first)) return false;
    loop_.forget(known.second.watch.fd());
    return true;
  });
  bool anew = false;
  for (auto& [folder, matter] : names) {
    if (const auto known = folders_.find(folder); known != folders_.end()) {
      known->second.names = std::move(matter);
      continue;
    }
    // Changes of content count too, since a person may write into a file instead of replacing it.
    auto watch = DirectoryWatch::open(host_, folder, DirectoryWatch::Contents::written);
    if (!watch) {
      failed_(watch.error());
      continue;
    }
    const int fd = watch->fd();
    folders_.emplace(folder, Folder{.watch = std::move(*watch), .names = std::move(matter)});
    loop_.watch(fd, [this, at = folder] { read(at); });
    anew = true;
  }
  return anew;
}

void WatchedFiles::forget(const fs::path& folder) {
  const auto found = folders_.find(folder);
  if (found == folders_.end()) return;
  loop_.forget(found->second.watch.fd());
  folders_.erase(found);
}

void WatchedFiles::read(const fs::path& folder) {
  const auto found = folders_.find(folder);
  if (found == folders_.end()) return;
  const auto events = found->second.watch.read();
  const auto matters = [&](const DirectoryEvent& event) {
    return event.name.empty() || found->second.names.contains(event.name);
  };
  const bool news = std::ranges::any_of(events, matters);
  const auto gone = [](const DirectoryEvent& event) { return event.kind == DirectoryEvent::Kind::gone; };
  if (std::ranges::any_of(events, gone)) forget(folder);
  if (news) changed_();
}

}  // namespace ferry::host
