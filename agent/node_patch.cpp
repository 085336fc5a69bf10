// SPDX-License-Identifier: Apache-2.0
#include "agent/node_patch.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "agent/cluster_objects.h"
#include "kube/api_path.h"

namespace ferry::agent {

using nlohmann::json;

NodePatch::NodePatch(kube::ApiClient& client, kube::Timers& timers, kube::Random random,
                     kube::EventRecorder::WallClock wall_clock, std::string node, AgentMemory& memory,
                     ClusterWatches& watches, ReconcileQueue& queue, Reconcile reconcile)
    : client_(client),
      timers_(timers),
      random_(std::move(random)),
      node_(std::move(node)),
      memory_(memory),
      watches_(watches),
      queue_(queue),
      reconcile_(std::move(reconcile)),
      events_(client, timers, random_, std::move(wall_clock), node_,
              [](const Error& error) { spdlog::warn("events are not shown: {}", error.text()); }) {}

void NodePatch::observe(const json& node) {
  if (!sent_ || (sent_->labels.empty() && sent_->annotations.empty())) return;
  const policy::NodeObject now = node_object_of(node);
  if (with_changes(now.labels, sent_->labels) != now.labels ||
      with_changes(now.annotations, sent_->annotations) != now.annotations)
    return;
  accepted(*std::exchange(sent_, {}));
}

bool NodePatch::act(const ReconcileResult& result, const json& node) {
  if (result.sends_patch) {
    send(node);
    return true;
  }
  if (result.empty()) {
    sent_.reset();
    if (memory_.patch.refusals.may_forget_own(timers_.now())) forget_refusals();
  }
  if (result.record_events) record(result);
  return false;
}

void NodePatch::send(const json& node) {
  sending_ = true;
  watches_.expect_patch();
  client_.change(
      kube::node_ref(node_),
      [this](const json& now) -> Result<json> {
        observe(now);
        auto result = reconcile_(now);
        if (!result) return json();
        sent_ = std::move(*result);
        return patch_of(*sent_);
      },
      [this](Result<json> changed) {
        sending_ = false;
        if (!changed) return not_accepted(changed.error());
        if (sent_) {
          memory_.patch.refusals.take(*sent_);
          accepted(*std::exchange(sent_, {}));
        }
        watches_.patched(std::move(*changed));
        queue_.schedule();
      },
      &node);
}

void NodePatch::not_accepted(const Error& error) {
  if (!is_refusal(error) || !sent_) return queue_.retry(error);
  // An admission policy may forbid a part of the patch. The other parts are sent without it.
  spdlog::error("{}", error.text());
  memory_.patch.refusals.refuse(*std::exchange(sent_, {}), error.text(), timers_.now(), random_);
  queue_.schedule();
}

void NodePatch::accepted(const ReconcileResult& sent) {
  constexpr std::chrono::minutes kInARow{10};
  constexpr std::chrono::seconds kFirst{2};
  constexpr std::chrono::seconds kLongest{20};
  PatchMemory& memory = memory_.patch;
  const NodePatchContent& changes = sent;
  const Moment now = timers_.now();
  record(sent);
  if (changes.has_own_labels()) forget_refusals();
  if (changes.is_error_alone()) {
    memory.error_pause =
        now > memory.error_again + kLongest ? kFirst : std::clamp(memory.error_pause * 2, kFirst, kLongest);
    memory.error_again = now + memory.error_pause;
  }
  if (changes.empty()) return;
  // Other programs may revert the patch: the same patch is not sent again at once.
  const bool again = changes == memory.last && now - memory.last_at < kInARow;
  if (!again) memory.repeats.reset();
  memory.again = again ? now + memory.repeats.next(random_) : now;
  memory.last_at = now;
  memory.last = changes;
}

/// Call this when the Node shows the agent's labels, or none are to be set.
void NodePatch::forget_refusals() {
  memory_.patch.refusals.forget_own();
  memory_.events.clear();
}

/// While the Node accepts no changes, the agent itself remembers which events it recorded.
bool NodePatch::is_news(const NodeEvent& event) {
  constexpr std::size_t kMost = 100;
  if (memory_.patch.refusals.remembers(timers_.now())) return true;
  std::set<std::string>& recorded = memory_.events;
  if (recorded.size() >= kMost) recorded.clear();
  return recorded.insert(event.reason + " " + event.message).second;
}

void NodePatch::record(const ReconcileResult& result) {
  for (const NodeEvent& event : result.events) {
    if (!is_news(event)) continue;
    spdlog::log(event.warning ? spdlog::level::warn : spdlog::level::info, "{}: {}", event.reason,
                event.message);
    events_.record(event.warning ? kube::EventRecorder::Type::warning : kube::EventRecorder::Type::normal,
                   event.reason, event.message);
  }
  const std::vector<std::string>& warnings = result.desired_state.warnings;
  memory_.warnings = {warnings.begin(), warnings.end()};
}

}  // namespace ferry::agent
