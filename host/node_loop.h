// SPDX-License-Identifier: Apache-2.0
// `ferry hostd` as one function: it starts a NodeKeeper's round after each event that may matter.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>

#include "common/event_loop.h"
#include "common/exit_status.h"
#include "common/result.h"
#include "host/node_keeper.h"
#include "hostfs/host_fs.h"
#include "vfio/pci/uevents.h"

namespace ferry::host {

struct NodeLoopOptions {
  KeeperSettings files;
  bool once = false;  ///< until the node is as wanted, or is known not to become so
  /// How long it is left alone who has the vGPUs: whoever opens one without the kubelet tells nobody, and to
  /// look is to walk all of /proc.
  std::chrono::milliseconds between_use_looks = std::chrono::seconds(30);
  /// How long between two looks at the devices where the kernel tells nothing of them.
  std::chrono::milliseconds without_uevents = std::chrono::seconds(30);
  /// The kernel's word of devices. An error: it tells nothing.
  std::function<Result<vfio::Uevents>()> open_uevents = vfio::Uevents::open;
  std::function<bool()> uevents_are_sent = vfio::Uevents::are_sent;
  /// Makes further work for the loop of the process that keeps the node; destroyed when the loop ends.
  std::function<std::shared_ptr<void>(EventLoop& loop)> beside = {};
  /// Called at the start, also while another one works, and before each round: folders of the host may be
  /// gone, or be others.
  std::function<void()> keep_folders = {};
};

/// Runs until `stop` is requested; a round that has begun is finished. The host is left as it is then.
///
/// A round follows changes of wanted.json, serving.json beside it, the policy file that wanted.json names,
/// and offered.json (inotify), device events of the kernel, and ends of processes that use a refused device
/// (process_ends.h); at most one round a second. As many descriptors are permitted to this
/// process as it may permit itself. Nothing is polled but by Round::again, who has vGPUs, and the devices
/// where the kernel does not tell of them. Of several at a time one works, the others wait until it ends; the
/// one that does shows it in run/ferry/hostd.presence (hostfs/presence.h), but with `once`.
///
/// Gives the exit status of the last round with `once`, else ExitStatus::done. Errors: Errc::refused with
/// `once` where another one runs, and where another one has begun to since run/ferry was removed; what the
/// operating system said when nothing can be watched, or when the lock's file is gone and cannot be had anew.
Result<ExitStatus> run_node_loop(HostFs& host, const NodeProbes& uses, NodeKeeper::HostFor node_host,
                                 const NodeLoopOptions& options, const std::stop_token& stop);

}  // namespace ferry::host
