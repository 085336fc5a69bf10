// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/discovery/host_watch.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace ferry::plugin {

// udev sets the mode of a node a moment after the kernel has made the node, and a CDI file says the mode.
HostWatch::HostWatch(const HostFs& host, EventLoop& loop, bool modes, Events events)
    : host_(host),
      loop_(loop),
      contents_(modes ? DirectoryWatch::Contents::attributes : DirectoryWatch::Contents::names),
      events_(std::move(events)) {}

void HostWatch::begin() {
  if (auto uevents = vfio::Uevents::open()) {
    uevents_.emplace(std::move(*uevents));
    loop_.watch(uevents_->fd(), [this] {
      if (uevents_->take()) events_.changed();
    });
  } else {
    spdlog::warn("{}", uevents.error().message);
  }
  (void)watch_nodes();
}

bool HostWatch::watch_nodes() {
  bool anew = false;
  for (NodeFolder& folder : folders_) anew = watch_nodes(folder) || anew;
  return anew;
}

bool HostWatch::watch_nodes(NodeFolder& folder) {
  if (folder.watch) return false;
  auto watch = DirectoryWatch::open(host_.root() / folder.path, contents_);
  if (!watch) return false;
  folder.watch.emplace(std::move(*watch));
  loop_.watch(folder.watch->fd(), [this, &folder] {
    const auto events = folder.watch->read();
    // A loss is listed at once. Only gains wait for a scan.
    for (const DirectoryEvent& event : events)
      if (event.kind == DirectoryEvent::Kind::vanished)
        events_.node_gone(fmt::format("/{}/{}", folder.path, event.name));
    if (std::ranges::find(events, DirectoryEvent::Kind::gone, &DirectoryEvent::kind) != events.end()) {
      loop_.forget(folder.watch->fd());
      folder.watch.reset();
    }
    events_.changed();
  });
  return true;
}

void HostWatch::leave() {
  for (const NodeFolder& folder : folders_) {
    if (!folder.watch) continue;
    loop_.forget(folder.watch->fd());
    folder.watch->leave();
  }
}

bool nodes_folder_was_removed(const HostFs& host) {
  const auto folder = host.open("dev/vfio", O_PATH | O_DIRECTORY);
  struct stat status {};
  return folder && ::fstat(folder->get(), &status) == 0 && status.st_nlink == 0;
}

}  // namespace ferry::plugin
