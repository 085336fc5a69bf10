// SPDX-License-Identifier: Apache-2.0
// Who holds what, by the kubelet's pod resources: asked at the start, before anything is given out; again
// when a kubelet begins to read our lists; and every few seconds while somebody waits for a release, since
// the kubelet never tells of one. Otherwise not at all.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "common/event_loop.h"
#include "common/host_fs.h"
#include "kubevirt-plugin/allocate_gate.h"
#include "kubevirt-plugin/allocation_core.h"
#include "vfio/pod_device.h"

namespace ferry {

class PodListCall;
class RpcQueue;

/// Belongs to the loop's thread.
class HolderWatch {
 public:
  struct Settings {
    std::filesystem::path socket;  ///< of the pod resources, relative to the host's root
    /// The kubelet's own, likewise. Where it is, a kubelet is or was, and may have given something out.
    std::filesystem::path kubelet_socket = "var/lib/kubelet/device-plugins/kubelet.sock";
    std::chrono::milliseconds period = std::chrono::seconds(5);
    /// How long an Allocate waits, at most, for the first answer.
    std::chrono::milliseconds patience = std::chrono::seconds(10);
    /// A kubelet that has just started may not know all its pods yet: for so long nothing counts as released.
    std::chrono::milliseconds settling = std::chrono::seconds(30);
  };

  /// All must outlive this.
  HolderWatch(const HostFs& host, EventLoop& loop, RpcQueue& queue, AllocationCore& core, AllocateGate& gate,
              Settings settings);
  HolderWatch(const HolderWatch&) = delete;
  HolderWatch& operator=(const HolderWatch&) = delete;
  HolderWatch(HolderWatch&&) = delete;
  HolderWatch& operator=(HolderWatch&&) = delete;
  ~HolderWatch();

  /// Asks now, and again with a growing pause until there is an answer: the gate is opened then, or closed
  /// when that takes too long. That neither socket is there is an answer at the start, and then only: no
  /// kubelet has given anything out.
  void begin();
  /// A kubelet has begun to read our lists: what it remembers from before is learnt. From here it settles.
  void kubelet_is_there();
  /// Nobody reads our lists any more. Who answers from now on may be a kubelet that has just started, and
  /// does so before it reads them: nothing counts as released until one is there and has settled.
  void kubelet_is_gone();
  /// The core has another snapshot.
  void snapshot_changed();

 private:
  void ask();
  void answered(Result<std::vector<PodDevice>> listed);
  void next_time();
  void ask_in(EventLoop::Clock::duration pause);

  const HostFs& host_;
  EventLoop& loop_;
  RpcQueue& queue_;
  AllocationCore& core_;
  AllocateGate& gate_;
  const Settings settings_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);

  bool known_ = false;
  bool learning_ = false;  // what a kubelet remembers that has come since
  EventLoop::Timer patience_timer_;
  EventLoop::Clock::duration pause_;
  Error last_error_;

  bool waits_ = false;  // a timer is set
  EventLoop::Timer timer_;
  std::unique_ptr<PodListCall> call_;
  EventLoop::Clock::time_point releases_from_ = EventLoop::Clock::time_point::max();
  bool once_more_ = false;  // when the call is over
  EventLoop::Clock::time_point asked_when_;
  AllocationCore::Ticket asked_at_ = 0;  // the last allocation before the list that is on its way
  AllocationCore::Ticket settled_ = 0;   // and before the one that came last
};

}  // namespace ferry
