// SPDX-License-Identifier: Apache-2.0
// The pod resources monitor: learns allocations and releases from the kubelet. It asks at the start, before
// any device is allocated. It asks again when a kubelet begins to read the plugin's lists. Until that kubelet
// knows its pods, it asks every few seconds and before each Allocate. It asks while a release is awaited,
// since the kubelet never reports one. On request it also asks until each allocated device's pod is known,
// and periodically until the release. Otherwise it never asks.
//
// A kubelet answers before it has heard of its pods from the API server, which may be unreachable for long.
// Its lists then lack all allocations in its checkpoint, though none of them is free. A pod that arrives then
// keeps its device without an Allocate, and the next pod's Allocate may be for another function of that
// group. Until a kubelet has shown that it knows its pods, each Allocate therefore waits for an answer to a
// question asked after its arrival. A kubelet admits pods one by one and lists a pod's devices from its
// admission on. So the answer contains all pods admitted before the one that asks. Pods admitted later remain
// unknown; of pods that arrive together the older go first. Two VMs may then still get functions of one
// group, and the second does not start. This needs a pod that keeps its device and is younger than a pod that
// is new here, or a kubelet that counts as knowing its pods too early (Settings::own_pod).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/event_loop.h"
#include "common/pinned.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/allocation/allocate_gate.h"
#include "kubevirt-plugin/allocation/allocation_core.h"
#include "kubevirt-plugin/allocation/kubelet_call.h"
#include "kubevirt-plugin/allocation/pod_list.h"

namespace ferry::plugin {

/// Belongs to the loop's thread.
class PodResourcesMonitor : Pinned {
 public:
  struct Settings {
    std::filesystem::path socket;  ///< of pod resources, relative to the host's root
    /// The kubelet's own, likewise. If it exists, a kubelet runs or has run, and may have allocated devices.
    /// Empty: its existence cannot be checked.
    std::filesystem::path kubelet_socket = "var/lib/kubelet/device-plugins/kubelet.sock";
    std::chrono::milliseconds period = std::chrono::seconds(5);
    /// How long an Allocate waits, at most, for the answer that it needs.
    std::chrono::milliseconds patience = std::chrono::seconds(10);
    /// A kubelet that has just started may not know all its pods yet. For this time after a kubelet has begun
    /// to read the lists, older allocations do not count as released. It knows the pods of allocations that
    /// it made itself.
    std::chrono::milliseconds settling = std::chrono::seconds(30);
    /// "namespace/name" of the pod that we run in, one of the API server's: a kubelet that lists it knows its
    /// pods. Empty: none. Then a kubelet that lists any device, or has allocated one of Ferry's, knows its
    /// pods.
    std::string own_pod = {};
    /// After this time a kubelet counts as knowing its pods without that proof: if `own_pod` is set, once it
    /// lists any device; if not, in any case.
    std::chrono::milliseconds doubt = std::chrono::minutes(10);
    /// Also ask until each allocated device's pod is known, and every `poll_period` while any device is
    /// allocated.
    bool names = false;
    /// A device counts as released after two lists without it.
    std::chrono::milliseconds poll_period = std::chrono::seconds(10);
  };

  /// All must outlive this object. `learnt` is called once known() is true.
  PodResourcesMonitor(const HostFs& host, EventLoop& loop, RpcQueue& queue, AllocationCore& core,
                      AllocateGate& gate, std::function<void()> learnt, Settings settings);
  ~PodResourcesMonitor();

  /// Asks now, and again with a growing pause until there is an answer. The gate then opens, or closes if the
  /// answer takes too long. At the start, the absence of both sockets counts as an answer: no kubelet has
  /// allocated anything. This does not apply if the kubelet's own socket cannot be seen.
  ///
  /// The gate opens for calls that had arrived when the question was asked, and for all calls once the
  /// kubelet knows its pods.
  void begin();
  /// Does the same as begin() after another plugin has allocated devices unseen: only the answer to a
  /// question asked from now on opens the gate.
  void begin_anew();
  /// A kubelet has begun to read the lists. Its earlier allocations are learnt. It must settle, and show that
  /// it knows its pods.
  void kubelet_is_there();
  /// No kubelet reads the lists any more. A later answer may come from a kubelet that has just started and
  /// does not read them yet. No device counts as released until a kubelet reads the lists and has settled.
  void kubelet_is_gone();
  /// AllocationCore has a new snapshot.
  void snapshot_changed();
  /// True once an answer has come and AllocationCore has it.
  bool known() const { return known_; }

 private:
  using Clock = EventLoop::Clock;
  using ListTime = AllocationCore::ListTime;
  struct Question {
    AllocationCore::Ticket ticket = 0;  // the last allocation before it
    Clock::time_point when;
    AllocateGate::Arrivals arrivals = 0;  // the calls before it, which its answer lets pass
  };
  /// A kubelet's knowledge, by its lists: not shown yet; of pods, perhaps not all; of all its pods.
  enum class PodsKnown { unverified, some, all };
  /// A kubelet that reads the lists.
  struct Reader {
    Clock::time_point since;
    AllocationCore::Ticket ticket = 0;  // the last allocation before it
    PodsKnown pods = PodsKnown::unverified;
    bool doubt_logged = false;
  };

  void ask_now();
  void call_waits();
  void start_gate_timer();
  void ask();
  void answered(Result<PodList> listed);
  /// The newest list's time: it tells which allocations are over if the list does not name them.
  ListTime time_of_list();
  void judge(const PodList& list);
  /// True if an answer is needed at once, with repeated questions until it comes.
  bool must_learn() const;
  /// The pause before the next question if nothing is to be learnt; absent: no question is needed.
  std::optional<Clock::duration> pause_for(const Snapshot& snapshot) const;
  void ask_in(Clock::duration pause);

  const HostFs& host_;
  EventLoop& loop_;
  RpcQueue& queue_;
  AllocationCore& core_;
  AllocateGate& gate_;
  const std::function<void()> learnt_;
  const Settings settings_;
  const std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);

  bool known_ = false;
  bool learnt_reported_ = false;
  Clock::time_point anew_since_;  // the time of begin_anew(); earlier questions do not decide
  bool learning_ = false;         // a new kubelet's allocations, or another plugin's, are awaited
  bool timed_out_ = false;        // the gate is closed until there is an answer
  EventLoop::Timer gate_timer_;   // closes the gate; Timer(): not set
  Clock::duration pause_;         // before an unanswered question is repeated
  Error last_error_;

  std::optional<Clock::duration> waiting_;  // the pause that timer_ ends; absent: it is not set
  EventLoop::Timer timer_;                  // the next question
  std::unique_ptr<KubeletCall> call_;
  bool ask_again_ = false;        // when the call is over
  std::optional<Reader> reader_;  // absent: no kubelet reads the lists
  Question question_;             // the last one
  // The question of the last list that counts. It was asked at least `period` after the question before it
  // that counted. Ticket 0: none.
  Question last_counted_;
};

}  // namespace ferry::plugin
