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
      if (!alive.expired()) call_waits();
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
  start_gate_timer();
  ask_now();
}

void PodResourcesMonitor::start_gate_timer() {
  loop_.cancel(gate_timer_);
  gate_timer_ = loop_.at(Clock::now() + settings_.patience, [this] {
    gate_timer_ = {};
    timed_out_ = true;
    const std::string why =
        last_error_.message.empty() ? "the kubelet has not answered yet" : last_error_.message;
    spdlog::error("the users of devices are not known, so none is allocated: {}", why);
    gate_.close({.code = Errc::unreachable,
                 .message = "the users of devices are not known: " + why,
                 .hint = "see whether the kubelet answers on its pod resources socket"});
  });
}

/// A question that was sent before a call arrived does not help it; another question follows that one.
void PodResourcesMonitor::call_waits() {
  if (!gate_.anybody_waits()) return;
  if (gate_timer_ == EventLoop::Timer()) start_gate_timer();
  pause_ = kFirstPause;
  if (!call_) ask();
}

void PodResourcesMonitor::kubelet_is_there() {
  reader_ = {.since = Clock::now(), .ticket = core_.ticket()};
  learning_ = true;
  pause_ = kFirstPause;
  ask_now();
}

/// The answer to a question that is under way may be older than the event, so another question follows.
void PodResourcesMonitor::ask_now() {
  if (call_) {
    ask_again_ = true;
  } else {
    ask();
  }
}

void PodResourcesMonitor::kubelet_is_gone() {
  reader_.reset();
  gate_.wait();
}

void PodResourcesMonitor::snapshot_changed() {
  if (must_learn()) return;
  const auto snapshot = core_.snapshot();
  const auto pause = pause_for(*snapshot);
  // A long pause must not delay a short one.
  if (pause && !call_ && (!waiting_ || *pause < *waiting_)) ask_in(*pause);
  if (!pause && waiting_) {
    loop_.cancel(timer_);
    waiting_.reset();
    last_counted_ = {};
  }
}

bool PodResourcesMonitor::must_learn() const {
  return !known_ || learning_ || timed_out_ || gate_.anybody_waits();
}

std::optional<Clock::duration> PodResourcesMonitor::pause_for(const Snapshot& snapshot) const {
  const bool doubted = reader_ && reader_->pods != PodsKnown::all;
  if (doubted || snapshot.awaits_release || (settings_.names && snapshot.awaits_name))
    return settings_.period;
  if (settings_.names && snapshot.is_allocated) return settings_.poll_period;
  return std::nullopt;
}

void PodResourcesMonitor::ask() {
  loop_.cancel(timer_);
  waiting_.reset();
  question_ = {.ticket = core_.ticket(), .when = Clock::now(), .arrivals = gate_.arrivals()};
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
  ListTime time{.asked = question_.ticket};
  // An allocation may be a second old that the kubelet does not list yet: two lists count that are a period
  // apart.
  const bool too_soon = last_counted_.ticket != 0 && question_.when < last_counted_.when + settings_.period;
  if (!too_soon) time.settled = std::exchange(last_counted_, question_).ticket;
  if (!reader_ || question_.when < reader_->since || reader_->pods == PodsKnown::unverified) {
    time.settled = 0;
  } else if (question_.when < reader_->since + settings_.settling) {
    time.kept = reader_->ticket;
  }
  return time;
}

/// Judges from a new list whether all pods are known. A new kubelet's first list that names pods may still be
/// incomplete.
void PodResourcesMonitor::judge(const PodList& list) {
  // The answer to an earlier question may come from the kubelet before this one.
  if (!reader_ || question_.when < reader_->since) return;
  if (reader_->pods != PodsKnown::unverified) {
    reader_->pods = PodsKnown::all;
    return;
  }
  const bool late = question_.when - reader_->since >= settings_.doubt;
  const bool knows = settings_.own_pod.empty()
                         ? late || !list.devices.empty() || question_.ticket > reader_->ticket
                         : std::ranges::find(list.pods, settings_.own_pod) != list.pods.end() ||
                               (late && !list.devices.empty());
  if (knows) {
    reader_->pods = PodsKnown::some;
  } else if (late && !std::exchange(reader_->doubt_logged, true)) {
    spdlog::warn("the kubelet does not list our own pod, {}, and so nothing counts as released",
                 settings_.own_pod);
  }
}

void PodResourcesMonitor::answered(Result<PodList> listed) {
  call_.reset();
  if (listed) {
    const ListTime time = time_of_list();  // by what earlier lists have shown
    judge(*listed);
    std::vector<Holding> held;
    held.reserve(listed->devices.size());
    for (vfio::PodDevice& device : listed->devices)
      held.push_back({.resource = std::move(device.resource),
                      .ids = std::move(device.ids),
                      .pod = device.pod.empty() ? std::string() : device.name_space + "/" + device.pod});
    core_.reconcile(held, time);
    known_ = true;
    last_error_ = {};
    learning_ = question_.when < anew_since_;
  } else {
    spdlog::debug("pod resources: {}", listed.error().message);
    last_error_ = listed.error();
  }

  if (listed && !learning_) {
    // The answer decides which Allocate calls may pass the gate, and which wait for the next answer.
    loop_.cancel(gate_timer_);
    gate_timer_ = {};
    timed_out_ = false;
    const bool knows_all_pods = reader_ && reader_->pods == PodsKnown::all;
    knows_all_pods ? gate_.open() : gate_.let_pass(question_.arrivals);
    if (gate_.anybody_waits()) start_gate_timer();
    if (!std::exchange(learnt_reported_, true)) learnt_();
    if (gate_.anybody_waits()) ask_again_ = true;
  }

  if (std::exchange(ask_again_, false)) return ask();
  if (!must_learn()) return snapshot_changed();
  ask_in(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void PodResourcesMonitor::ask_in(Clock::duration pause) {
  loop_.cancel(timer_);
  waiting_ = pause;
  timer_ = loop_.at(Clock::now() + pause, [this] { ask(); });
}

}  // namespace ferry::plugin
