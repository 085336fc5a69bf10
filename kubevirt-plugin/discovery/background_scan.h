// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanner.h"

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
  void remember(std::span<const FatalErrorsOf> before);

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

}  // namespace ferry::plugin
