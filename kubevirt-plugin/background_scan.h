// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "common/event_loop.h"
#include "common/host_fs.h"
#include "common/result.h"
#include "kubevirt-plugin/offer_assembly.h"
#include "kubevirt-plugin/offer_rules.h"
#include "kubevirt-plugin/scanner.h"

namespace ferry {

/// Scans the host on a thread that lives as long as a scan: a read of sysfs may take minutes, or never
/// return, when a driver hangs, and whoever serves the kubelet does so meanwhile. Belongs to the loop's
/// thread.
class BackgroundScan {
 public:
  using Scanned = std::function<void(Result<Offer>)>;

  /// `loop` must outlive this; `scanned` is called in it.
  BackgroundScan(const HostFs& host, const OfferRules& rules, ReadVgpus read_vgpus, EventLoop& loop,
                 Scanned scanned);
  BackgroundScan(const BackgroundScan&) = delete;
  BackgroundScan& operator=(const BackgroundScan&) = delete;
  BackgroundScan(BackgroundScan&&) = delete;
  BackgroundScan& operator=(BackgroundScan&&) = delete;
  /// A scan that is under way is waited for, a moment long.
  ~BackgroundScan();

  /// Begins a scan; once more after one that is under way, since that may have seen what was before. One that
  /// lasts is logged, and that it has ended.
  void begin();
  /// What a predecessor's scans have found. Before the first begin().
  void remember(std::span<const FatalErrorsOf> before);

 private:
  struct Shared;

  void ended(Result<Offer> offer);

  EventLoop& loop_;
  const Scanned scanned_;
  const std::shared_ptr<Shared> shared_;  // outlives this where a scan does
  bool under_way_ = false;
  bool once_more_ = false;
  bool lasts_ = false;
  EventLoop::Timer patience_;
};

}  // namespace ferry
