// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/holder_watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "kubevirt-plugin/pod_list_call.h"
#include "kubevirt-plugin/pod_resources.h"

namespace ferry {
namespace {

using Clock = EventLoop::Clock;

constexpr Clock::duration kFirstPause = std::chrono::milliseconds(10);
constexpr Clock::duration kLongestPause = std::chrono::seconds(10);

std::vector<Holding> holdings_of(std::vector<PodDevice> devices) {
  std::vector<Holding> held;
  held.reserve(devices.size());
  for (PodDevice& device : devices)
    held.push_back({.resource = std::move(device.resource), .ids = std::move(device.ids)});
  return held;
}

}  // namespace

HolderWatch::HolderWatch(const HostFs& host, EventLoop& loop, RpcQueue& queue, AllocationCore& core,
                         AllocateGate& gate, Settings settings)
    : host_(host),
      loop_(loop),
      queue_(queue),
      core_(core),
      gate_(gate),
      settings_(std::move(settings)),
      pause_(kFirstPause) {}

HolderWatch::~HolderWatch() {
  loop_.cancel(timer_);
  loop_.cancel(patience_timer_);
}

void HolderWatch::begin() {
  patience_timer_ = loop_.at(Clock::now() + settings_.patience, [this] {
    spdlog::error("who holds devices is not known, so none is given out: {}", last_error_.message);
    gate_.close({.code = make_error_code(Errc::unreachable),
                 .message = "who holds devices is not known: " + last_error_.message,
                 .hint = "see whether the kubelet answers on its pod resources socket"});
  });
  ask();
}

void HolderWatch::kubelet_is_there() {
  releases_from_ = Clock::now() + settings_.settling;
  learning_ = true;
  pause_ = kFirstPause;
  if (call_) {
    once_more_ = true;
  } else {
    ask();
  }
}

void HolderWatch::kubelet_is_gone() {
  releases_from_ = Clock::time_point::max();
}

void HolderWatch::snapshot_changed() {
  if (!known_ || learning_) return;
  const bool wanted = core_.snapshot()->awaits_release;
  if (wanted && !waits_ && !call_) ask_in(settings_.period);
  if (!wanted && waits_) {
    loop_.cancel(timer_);
    waits_ = false;
    settled_ = 0;
  }
}

void HolderWatch::ask() {
  loop_.cancel(timer_);
  waits_ = false;
  asked_at_ = core_.ticket();
  asked_when_ = Clock::now();
  auto connection = connect_pod_resources(host_, settings_.socket);
  if (!connection) return answered(fail(std::move(connection).error()));
  std::optional<UniqueFd>& socket = *connection;
  if (!socket && !known_ && !host_.exists(settings_.kubelet_socket))
    return answered(std::vector<PodDevice>());
  if (!socket) {
    return answered(
        fail(Errc::unreachable, fmt::format("there is no /{}, though a kubelet {}", settings_.socket.string(),
                                            known_ ? "may be down only" : "is there")));
  }
  call_ = std::make_unique<PodListCall>(queue_, std::move(*socket),
                                        // On the queue's thread, perhaps after this is gone.
                                        [this, &loop = loop_, alive = std::weak_ptr<const bool>(alive_)](
                                            Result<std::vector<PodDevice>> listed) {
                                          loop.post([this, alive, listed = std::move(listed)]() mutable {
                                            if (!alive.expired()) answered(std::move(listed));
                                          });
                                        });
}

void HolderWatch::answered(Result<std::vector<PodDevice>> listed) {
  call_.reset();
  if (listed) {
    const auto before = std::exchange(settled_, asked_at_);
    core_.reconcile(holdings_of(std::move(*listed)),
                    {.asked = asked_at_, .settled = asked_when_ < releases_from_ ? 0 : before});
    learning_ = false;
    if (!std::exchange(known_, true)) {
      loop_.cancel(patience_timer_);
      gate_.open();
    }
  } else {
    spdlog::debug("pod resources: {}", listed.error().message);
    last_error_ = std::move(listed).error();
  }
  next_time();
}

void HolderWatch::next_time() {
  if (std::exchange(once_more_, false)) return ask();
  if (known_ && !learning_) return snapshot_changed();
  ask_in(pause_);
  pause_ = std::min(2 * pause_, kLongestPause);
}

void HolderWatch::ask_in(Clock::duration pause) {
  loop_.cancel(timer_);
  waits_ = true;
  timer_ = loop_.at(Clock::now() + pause, [this] { ask(); });
}

}  // namespace ferry
