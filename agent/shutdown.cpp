// SPDX-License-Identifier: Apache-2.0
#include "agent/shutdown.h"

#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "agent/cluster_objects.h"
#include "agent/host_files.h"
#include "agent/operator_compat/operands.h"
#include "api/labels.h"
#include "kube/api_error.h"
#include "kube/api_path.h"

namespace ferry::agent {
namespace {

using nlohmann::json;

// Time for hostd to end a change and for the API server to be updated; shorter than the termination grace
// period.
constexpr std::chrono::seconds kPatience{60};
// Part of kPatience for the API server.
constexpr std::chrono::seconds kLastWord{10};

/// The patch that reverts changes of the agent which no other program would revert: pauses and the cordon.
json undoing(const json& node, bool with_cordon) {
  const policy::NodeObject now = node_object_of(node);
  const DrainStep drain = with_cordon ? drain_undone(now, is_cordoned(node)) : DrainStep();
  return patch_of(resume_operands(now.labels), drain.annotations, drain.unschedulable);
}

bool is_permitted_at_work(const HostSide& host) {
  const auto& written = host.kata_written;
  return host.kata.applying || (written && written->permitted && host.kata.generation != written->generation);
}

/// If the node has a rollout lease, its result matters to the cluster, even if hostd has yet to begin.
bool is_at_work(const HostSide& host, bool has_lease) {
  return host_is_changing(host) || (has_lease && (!has_answered(host) || is_permitted_at_work(host)));
}

}  // namespace

Shutdown::Shutdown(Parts parts, EventLoop::Job ended)
    : parts_(std::move(parts)),
      ended_(std::move(ended)),
      deadline_(parts_.timers.now() + kPatience),
      timer_(parts_.timers) {
  timer_.set(deadline_, [this] { end(); });
}

void Shutdown::act() {
  if (parts_.patch.is_sending() || is_undoing_) return;  // the answer comes back here
  const json* const node = parts_.watches.node();
  const bool keeps = node != nullptr && !is_undone_ && !undoing(*node, true).is_null();
  const bool has_lease = node != nullptr && parts_.leases != nullptr && parts_.leases->may_have_one();
  if (!keeps && !has_lease) return end();
  parts_.observer.read_liveness();
  const Moment late = deadline_ - kLastWord;
  if (is_at_work(parts_.observer.files(), has_lease) && parts_.observer.hostd_runs() &&
      parts_.timers.now() < late)
    return parts_.queue.requeue(late);
  // A change that will not begin justifies no eviction.
  parts_.evictions.leave_out_others({});
  if (keeps) return undo(true);
  give_lease_back(*node);
}

/// If the server refuses the uncordon, the operands are resumed without it.
void Shutdown::undo(bool with_cordon) {
  is_undoing_ = true;
  parts_.client.change(
      kube::node_ref(parts_.node),
      [with_cordon](const json& now) -> Result<json> { return undoing(now, with_cordon); },
      [this, with_cordon](const Result<json>& changed) {
        is_undoing_ = false;
        is_undone_ = true;
        if (changed) return act();
        spdlog::error(
            "{} of Node {}: {}; the next agent takes that back, or whoever uncordons it, and takes {} off "
            "its "
            "labels {}*",
            with_cordon ? "a cordon, or pauses of operands, stay" : "pauses of operands stay", parts_.node,
            changed.error().text(), kPauseMark, api::kDeployPrefix);
        const bool refused = changed.error().code == kube::ApiErrc::forbidden ||
                             changed.error().code == kube::ApiErrc::invalid;
        if (with_cordon && refused) return undo(false);
        act();
      },
      parts_.watches.node());
}

void Shutdown::give_lease_back(const json& node) {
  if (parts_.leases->is_writing()) return;  // the answer comes back here
  const NodeSnapshot snapshot = parts_.observe(node);
  if (!snapshot.rollout) return end();
  if (!snapshot.rollout->trouble.empty()) return keep_lease(snapshot.rollout->trouble);
  if (!snapshot.rollout->known) return;  // wait for the API server, or the deadline
  const LastLease last = last_lease(snapshot);
  if (last.lease.kind == RolloutStep::Kind::nothing) return end();
  if (last.kata) {
    if (auto written = write_desired_classes(parts_.host, *last.kata); !written)
      return keep_lease(written.error().text());
  }
  parts_.leases->act(last.lease, {});
}

void Shutdown::keep_lease(const std::string& why) {
  spdlog::error("the rollout lease of Node {} is not freed: {}", parts_.node, why);
  end();
}

void Shutdown::end() {
  timer_.cancel();
  if (const auto ended = std::exchange(ended_, nullptr)) ended();
}

}  // namespace ferry::agent
