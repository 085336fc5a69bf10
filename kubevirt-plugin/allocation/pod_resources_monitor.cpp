// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/allocation/pod_resources_monitor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "kubevirt-plugin/allocation/pod_resources.h"

namespace ferry::plugin {
namespace {

using Clock = EventLoop::Clock;

constexpr Clock::duration kFirstPause = std::chrono::milliseconds(10);
constexpr Clock::duration kLongestPause = std::chrono::seconds(10);

std::vector<Holding> holdings_of(std::vector<vfio::PodDevice> devices) {
  std::vector<Holding> held;
  held.reserve(devices.size());
  for (vfio::PodDevice& device : devices)
    held.push_back({.resource = std::move(device.resource),
                    .ids = std::move(device.ids),
                    .pod = device.pod.empty() ? std::string() : device.name_space + "/" + device.pod});
  return held;
}

}  // namespace

PodResourcesMonitor::PodResourcesMonitor(const HostFs& host, EventLoop& loop, RpcQueue& queue,
                                         AllocationCore& core, AllocateGate& gate,
                                         std::function<void()> learnt, Settings settings)
    : host_(host),
      loop_(loop),
      queue_(queue),
      core_(core),
      gate_(gate),
      learnt_(std::move(learnt)),
      settings_(std::move(settings)),
      pause_(kFirstPause) {
  // The callback runs on the queue's thread.
  gate_.on_wait([this, &loop = loop_, alive = std::weak_ptr<const bool>(alive_)] {
    loop.post([this, alive] {
      if (!alive.expired()) somebody_waits();
    });
  });
}

PodResourcesMonitor::~PodResourcesMonitor() {
  gate_.on_wait({});
  loop_.cancel(timer_);
  loop_.cancel(gate_timer_);
}

void PodResourcesMonitor::begin_anew() {
  anew_since_ = Clock::now();
  learnt_reported_ = false;
  learning_ = true;
  pause_ = kFirstPause;
  gate_.wait();
  begin();
}

void PodResourcesMonitor::begin() {
  start_timer();
  ask_now();
}

void PodResourcesMonitor::start_timer() {
  loop_.cancel(gate_timer_);
  timer_runs_ = true;
  gate_timer_ = loop_.at(Clock::now() + settings_.patience, [this] {
    timer_runs_ = false;
    too_late_ = true;
    const std::string why =
        last_error_.message.empty() ? "the kubelet has not answered yet" : last_error_.message;
    spdlog::error("the users of devices are not known, so none is allocated: {}", why);
    gate_.close({.code = Errc::unreachable,
                 .message = "the users of devices are not known: " + why,
                 .hint = "see whether the kubelet answers on its pod resources socket"});
  });
}

/// A question that was sent before a call arrived does not help it; another question follows that one.
void PodResourcesMonitor::somebody_waits() {
  if (!gate_.anybody_waits()) return;
  if (!timer_runs_) start_timer();
  pause_ = kFirstPause;
  if (!call_) ask();
}

void PodResourcesMonitor::kubelet_is_there() {
  there_since_ = Clock::now();
  there_at_ = core_.ticket();
  pods_known_ = PodsKnown::unverified;
  doubt_logged_ = false;
  learning_ = true;
  pause_ = kFirstPause;
  ask_now();
}

/// The answer to a question that is under way may be older than the event, so another question follows.
void PodResourcesMonitor::ask_now() {
  if (call_) {
    once_more_ = true;
  } else {
    ask();
  }
}

void PodResourcesMonitor::kubelet_is_gone() {
  there_since_.reset();
  gate_.wait();
}

void PodResourcesMonitor::snapshot_changed() {
  if (must_learn()) return;
  const auto snapshot = core_.snapshot();
  const auto pause = pause_for(*snapshot);
  // A long pause must not delay a short one.
  if (pause && !call_ && (!waits_ || *pause < waiting_)) ask_in(*pause);
  if (!pause && waits_) {
    loop_.cancel(timer_);
    waits_ = false;
    settled_ = 0;
  }
}

bool PodResourcesMonitor::must_learn() const {
  return !known_ || learning_ || too_late_ || gate_.anybody_waits();
}

std::optional<Clock::duration> PodResourcesMonitor::pause_for(const Snapshot& snapshot) const {
  const bool doubted = there_since_ && pods_known_ != PodsKnown::all;
  if (doubted || snapshot.awaits_release || (settings_.names && snapshot.awaits_name))
    return settings_.period;
  if (settings_.names && snapshot.is_allocated) return settings_.poll_period;
  return std::nullopt;
}

void PodResourcesMonitor::ask() {
  loop_.cancel(timer_);
  waits_ = false;
  asked_at_ = core_.ticket();
  asked_when_ = Clock::now();
  asked_for_ = gate_.arrivals();
  auto connection = connect_pod_resources(host_, settings_.socket);
  if (!connection) return answered(fail(std::move(connection).error()));
  std::optional<UniqueFd>& socket = *connection;
  if (!socket) {
    const bool seen = !settings_.kubelet_socket.empty();
    if (!known_ && seen && !host_.exists(settings_.kubelet_socket)) return answered(PodList());
    const char* const kubelet = known_ ? "may be down only" : seen ? "is there" : "may be there";
    return answered(fail(Errc::unreachable, fmt::format("there is no /{}, though a kubelet {}",
                                                        settings_.socket.string(), kubelet)));
  }
  call_ = list_pods(queue_, std::move(*socket),
                    // This callback runs on the queue's thread, perhaps after this object is gone.
                    [this, &loop = loop_, alive = std::weak_ptr<const bool>(alive_)](Result<PodList> listed) {
                      loop.post([this, alive, listed = std::move(listed)]() mutable {
                        if (!alive.expired()) answered(std::move(listed));
                      });
                    });
}

PodResourcesMonitor::ListTime PodResourcesMonitor::time_of_list() {
  ListTime time{.asked = asked_at_};
  // An allocation may be a second old that the kubelet does not list yet: two lists count that are a period
  // apart.
  const bool too_soon = settled_ != 0 && asked_when_ < settled_when_ + settings_.period;
  if (!too_soon) {
    settled_when_ = asked_when_;
    time.settled = std::exchange(settled_, asked_at_);
  }
  if (!there_since_ || asked_when_ < *there_since_ || pods_known_ == PodsKnown::unverified) {
    time.settled = 0;
  } else if (asked_when_ < *there_since_ + settings_.settling) {
    time.kept = there_at_;
  }
  return time;
}

/// Judges from a new list whether all pods are known. A new kubelet's first list that names pods may still be
/// incomplete.
void PodResourcesMonitor::judge(const PodList& list) {
  if (!there_since_ || asked_when_ < *there_since_) return;  // of the one before, perhaps
  if (pods_known_ != PodsKnown::unverified) {
    pods_known_ = PodsKnown::all;
    return;
  }
  const bool late = asked_when_ - *there_since_ >= settings_.doubt;
  const bool knows = settings_.own_pod.empty()
                         ? late || !list.devices.empty() || asked_at_ > there_at_
                         : std::ranges::find(list.pods, settings_.own_pod) != list.pods.end() ||
                               (late && !list.devices.empty());
  if (knows) {
    pods_known_ = PodsKnown::some;
  } else if (late && !std::exchange(doubt_logged_, true)) {
    spdlog::warn("the kubelet does not list our own pod, {}, and so nothing counts as released",
                 settings_.own_pod);
  }
}

void PodResourcesMonitor::answered(Result<PodList> listed) {
  call_.reset();
  if (listed) {
    const ListTime time = time_of_list();  // by what earlier lists have shown
    judge(*listed);
    core_.reconcile(holdings_of(std::move(listed->devices)), time);
    known_ = true;
    last_error_ = {};
    learning_ = asked_when_ < anew_since_;
    if (!learning_) {
      decide_gate();
      if (gate_.anybody_waits()) once_more_ = true;
    }
  } else {
    spdlog::debug("pod resources: {}", listed.error().message);
    last_error_ = std::move(listed).error();
  }
  next_time();
}

void PodResourcesMonitor::decide_gate() {
  loop_.cancel(gate_timer_);
  timer_runs_ = false;
  too_late_ = false;
  knows_all_pods() ? gate_.open() : gate_.let_pass(asked_for_);
  if (gate_.anybody_waits()) start_timer();
  if (!std::exchange(learnt_reported_, true)) learnt_();
}

void PodResourcesMonitor::next_time() {
  if (std::exchange(once_more_, false)) return ask();
  if (!must_learn()) return snapshot_changed();
  ask_in(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void PodResourcesMonitor::ask_in(Clock::duration pause) {
  loop_.cancel(timer_);
  waits_ = true;
  waiting_ = pause;
  timer_ = loop_.at(Clock::now() + pause, [this] { ask(); });
}

}  // namespace ferry::plugin
