// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/uevents.h"

namespace ferry::plugin {

/// Reports changes of the host's devices: the kernel's uevents, and the nodes below /dev/vfio. Either source
/// suffices. Without both, changes are seen when a device is asked about. Belongs to the loop's thread.
class HostWatch : Pinned {
 public:
  struct Events {
    /// Something changed, and a scan shows which device.
    std::function<void()> changed;
    /// A node is gone: "/dev/vfio/8". `changed` follows.
    std::function<void(const std::string& node)> node_gone;
  };

  /// `host` and `loop` must outlive this object. `modes`: changes of a node's mode count as well.
  HostWatch(const HostFs& host, EventLoop& loop, bool modes, Events events);

  void begin();
  /// Watches the folders of nodes that exist and are not watched yet. True: one is new. The kernel makes
  /// /dev/vfio with the first module of VFIO, and its folder `devices` with the first node in it.
  bool watch_nodes();
  /// Ends the watch of the folders (DirectoryWatch::leave()).
  void leave();

 private:
  struct NodeFolder {
    const char* path = nullptr;
    std::optional<DirectoryWatch> watch = {};
  };

  bool watch_nodes(NodeFolder& folder);

  const HostFs& host_;
  EventLoop& loop_;
  const DirectoryWatch::Contents contents_;
  const Events events_;
  std::optional<vfio::Uevents> uevents_;
  std::array<NodeFolder, 2> folders_ = {NodeFolder{.path = "dev/vfio"},
                                        NodeFolder{.path = "dev/vfio/devices"}};
};

/// True if this process's /dev/vfio was removed. The kernel removes a folder of /dev with its last node, and
/// creates another for the next node. A container with the folder mounted keeps the removed one and sees no
/// node any more.
bool nodes_folder_was_removed(const HostFs& host);

}  // namespace ferry::plugin
