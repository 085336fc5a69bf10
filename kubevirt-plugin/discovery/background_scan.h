// SPDX-License-Identifier: Apache-2.0
// Scans of the host beside the loop, and the changes of the host that make a scan necessary.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/directory_watch.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanner.h"
#include "vfio/pci/uevents.h"

namespace ferry::plugin {

/// Scans the host on a thread of its own, which lives as long as the scan. If a driver hangs, a read of sysfs
/// may take minutes or never return, and the plugin must serve the kubelet meanwhile. Belongs to the loop's
/// thread.
class BackgroundScan : Pinned {
 public:
  using Scanned = std::function<void(Result<ResourceSet>)>;

  /// `loop` must outlive this object and calls `scanned`.
  BackgroundScan(const HostFs& host, const ResourceRules& rules, ReadVgpus read_vgpus, EventLoop& loop,
                 Scanned scanned);
  /// Waits for a running scan, but only briefly.
  ~BackgroundScan();

  /// Begins a scan. If a scan is running, another one follows, since the running scan may have seen the
  /// earlier state. A scan that takes long is logged, and so is its end.
  void begin();
  /// Passes on the findings of an earlier process's scans. Call it before the first begin().
  void remember(std::span<const vfio::FatalErrorsOf> before);
  /// Makes the next scan that begins wake the sleeping functions once more (Scanner::doubt()).
  void doubt();

 private:
  struct Shared;

  void ended(Result<ResourceSet> found);

  EventLoop& loop_;
  const Scanned scanned_;
  const std::shared_ptr<Shared> shared_;  // outlives this object during a scan
  bool under_way_ = false;
  bool once_more_ = false;
  bool lasts_ = false;
  EventLoop::Timer patience_;
};

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
