// SPDX-License-Identifier: Apache-2.0
// Who holds what, by the kubelet's pod resources: asked at the start, before anything is given out; again
// when a kubelet begins to read our lists, every few seconds until it knows its pods, and until then before
// each Allocate; while somebody waits for a release, since the kubelet never tells of one; and, where that is
// asked for, until it is known which pods have what is allocated, and now and then until they have it no
// more. Otherwise not at all.
//
// A kubelet answers before it has heard of its pods from the API server, which may be away for long: all that
// its checkpoint has given out is missing from its lists then, and nothing of it is free. A pod that comes
// then keeps what the checkpoint has for it, without an Allocate; and the next pod's Allocate may be for
// another function of that group. So each Allocate waits, as long as a kubelet has not shown that it knows
// its pods, for an answer to what was asked after it had come. A kubelet takes up one pod after the other and
// lists what a pod has from where it takes it up: whose turn was before that of the pod that asks is known by
// then. Whose turn comes later is not (of pods that come together the older go first), and two VMs may get
// functions of one group still, of which the second does not start: when the pod that keeps its device is
// younger than one that had not run here before, or when a kubelet has shown enough to be believed before it
// hears of that pod (Settings::own_pod).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/event_loop.h"
#include "common/host_fs.h"
#include "kubevirt-plugin/allocate_gate.h"
#include "kubevirt-plugin/allocation_core.h"
#include "kubevirt-plugin/pod_list.h"

namespace ferry {

class PodListCall;
class RpcQueue;

/// Belongs to the loop's thread.
class HolderWatch {
 public:
  struct Settings {
    std::filesystem::path socket;  ///< of the pod resources, relative to the host's root
    /// The kubelet's own, likewise. Where it is, a kubelet is or was, and may have given something out.
    /// Empty: that cannot be seen.
    std::filesystem::path kubelet_socket = "var/lib/kubelet/device-plugins/kubelet.sock";
    std::chrono::milliseconds period = std::chrono::seconds(5);
    /// How long an Allocate waits, at most, for the answer that it needs.
    std::chrono::milliseconds patience = std::chrono::seconds(10);
    /// A kubelet that has just started may not know all its pods yet: for so long nothing counts as released
    /// that was allocated before it came. The pods of its own allocations it knows.
    std::chrono::milliseconds settling = std::chrono::seconds(30);
    /// "namespace/name" of the pod that we run in, one of the API server's: a kubelet that lists it knows its
    /// pods. Empty: none. Then one does that lists a device of anybody's, or has asked for one of ours.
    std::string own_pod = {};
    /// A kubelet that has shown none of that for so long counts as one that knows its pods: without our own
    /// if it lists a device, and where we are in no pod whatever it lists.
    std::chrono::milliseconds doubt = std::chrono::minutes(10);
    /// Ask also until it is known which pods have what is allocated, and as long as some is.
    bool names = false;
    /// How long between two looks then: two that do not name it, and a device counts as released.
    std::chrono::milliseconds between_looks = std::chrono::seconds(10);
  };

  /// All must outlive this. `learnt`: known() is true by now.
  HolderWatch(const HostFs& host, EventLoop& loop, RpcQueue& queue, AllocationCore& core, AllocateGate& gate,
              std::function<void()> learnt, Settings settings);
  HolderWatch(const HolderWatch&) = delete;
  HolderWatch& operator=(const HolderWatch&) = delete;
  HolderWatch(HolderWatch&&) = delete;
  HolderWatch& operator=(HolderWatch&&) = delete;
  ~HolderWatch();

  /// Asks now, and again with a growing pause until there is an answer: the gate is opened then, or closed
  /// when that takes too long. That neither socket is there is an answer at the start, and then only: no
  /// kubelet has given anything out. (Where the kubelet's own cannot be seen it is none.)
  ///
  /// "Opened" is for those who had come by the time of asking, and for everybody once the kubelet is one that
  /// knows its pods.
  void begin();
  /// Others have given devices out, of whom nothing was learnt: as begin(), and only an answer to what is
  /// asked from here on opens the gate.
  void begin_anew();
  /// A kubelet has begun to read our lists: what it remembers from before is learnt. From here it settles,
  /// and has to show that it knows its pods.
  void kubelet_is_there();
  /// Nobody reads our lists any more. Who answers from now on may be a kubelet that has just started, and
  /// does so before it reads them: nothing counts as released until one is there and has settled.
  void kubelet_is_gone();
  /// The core has another snapshot.
  void snapshot_changed();
  /// Whether there has been an answer: the core has what it said.
  bool known() const { return known_; }

 private:
  void ask_now();
  void somebody_waits();
  void start_patience();
  void ask();
  void answered(Result<PodList> listed);
  void next_time();
  using ListTime = AllocationCore::ListTime;
  /// Of the list that has just come: which allocations are over if it does not name them.
  ListTime time_of_list();
  void judge(const PodList& list);
  /// Whether every pod that has something of ours is known, up to the next Allocate.
  bool sees_whole() const { return there_since_ && sight_ == Sight::whole; }
  /// By an answer: who may pass the gate, and who has to wait for the next one.
  void decide_gate();
  /// Whether an answer is wanted at once, and again with a growing pause until there is one.
  bool must_learn() const;
  /// How long to wait with nothing else to learn; absent: nobody waits for anything.
  std::optional<EventLoop::Clock::duration> pause_for(const Snapshot& snapshot) const;
  void ask_in(EventLoop::Clock::duration pause);

  const HostFs& host_;
  EventLoop& loop_;
  RpcQueue& queue_;
  AllocationCore& core_;
  AllocateGate& gate_;
  const std::function<void()> learnt_;
  const Settings settings_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);

  bool known_ = false;
  bool told_learnt_ = false;
  EventLoop::Clock::time_point anew_since_;  // of begin_anew(); what was asked before does not decide
  bool learning_ = false;                    // what a kubelet remembers that has come since
  bool patient_ = false;                     // the timer runs: the gate is closed when it ends
  bool too_late_ = false;                    // it is, until there is an answer
  EventLoop::Timer patience_timer_;
  EventLoop::Clock::duration pause_;
  Error last_error_;

  bool waits_ = false;                    // a timer is set
  EventLoop::Clock::duration waiting_{};  // for so long it was
  EventLoop::Timer timer_;
  std::unique_ptr<PodListCall> call_;
  std::optional<EventLoop::Clock::time_point> there_since_;  // a kubelet that reads our lists
  AllocationCore::Ticket there_at_ = 0;                      // the last allocation before it
  /// What its lists have shown: not yet that it knows its pods; that it does, perhaps not all of them; all.
  enum class Sight { doubted, begun, whole };
  Sight sight_ = Sight::doubted;
  bool doubt_told_ = false;
  bool once_more_ = false;  // when the call is over
  EventLoop::Clock::time_point asked_when_;
  AllocateGate::Arrivals asked_for_ = 0;       // who waited by then
  AllocationCore::Ticket asked_at_ = 0;        // the last allocation before the list that is on its way
  AllocationCore::Ticket settled_ = 0;         // and before one that came a period ago, or later
  EventLoop::Clock::time_point settled_when_;  // when that one was asked for
};

}  // namespace ferry
