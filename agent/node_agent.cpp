// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "agent/desired_state/written_policy.h"
#include "agent/drain/drain_mark.h"
#include "agent/host_files.h"
#include "agent/labels/feature_labels.h"
#include "agent/node_refusals.h"
#include "agent/operator_compat/operands.h"
#include "api/labels.h"
#include "common/config/config_tree.h"
#include "kube/api_path.h"

namespace ferry::agent {
namespace {

using nlohmann::json;

// Time for an agent that ends: for hostd to end a change and for the API server to be updated; shorter than
// the termination grace period.
constexpr std::chrono::seconds kLeavePatience{60};
// Part of kLeavePatience for the API server.
constexpr std::chrono::seconds kLastWord{10};

/// The patch that reverts changes of the agent which no other program would revert: pauses and the cordon.
json undoing(const json& node, bool with_cordon) {
  const policy::NodeObject now = node_object_of(node);
  NodePatchContent changes;
  if (with_cordon) changes = drain_undone(now, is_cordoned(node));
  changes.labels = resume_operands(now.labels);
  return patch_of(changes);
}

/// The configuration's name for people; empty: not known here.
std::string name_of(const std::string& configuration, const DesiredPolicy& desired_policy) {
  if (is_kata_configuration(configuration)) return "Kata's runtimes";
  if (configuration.empty() || desired_policy.name.empty()) return {};
  return configuration == configuration_id(desired_policy.policy) ? desired_policy.name : std::string();
}

}  // namespace

NodeAgent::NodeAgent(HostFs& host, kube::ApiTransport& transport, kube::Timers& timers,
                     const kube::Random& random, kube::EventRecorder::WallClock wall_clock,
                     AgentSettings settings)
    : host_(host),
      timers_(timers),
      wall_clock_(std::move(wall_clock)),
      settings_(std::move(settings)),
      queue_(timers, random, [this] { reconcile_now(); }),
      client_(transport, timers, random),
      observer_(host, timers, memory_.host, queue_),
      watches_(transport, timers, random, settings_, queue_),
      patch_(client_, timers, random, wall_clock_, settings_.node, memory_, watches_, queue_,
             [this](const json& node) -> std::optional<ReconcileResult> {
               if (leaves_) return std::nullopt;
               return reconcile_with(node);
             }),
      evictions_(client_, timers, random, queue_.scheduler()),
      owners_(client_, timers, queue_.scheduler()),
      former_feature_(host, client_, timers, random),
      leave_timer_(timers) {
  if (settings_.fetcher != nullptr)
    pulls_ = std::make_unique<ArtifactPulls>(host_, *settings_.fetcher, timers_, random, settings_.pull,
                                             queue_.scheduler());
  if (settings_.features == FeatureWay::nfd)
    node_feature_ = std::make_unique<NodeFeature>(host_, transport, client_, timers_, random, settings_,
                                                  queue_.scheduler());
  if (settings_.most_changing > 0)
    leases_ = std::make_unique<RolloutLeases>(transport, client_, timers_, random, wall_clock_, settings_,
                                              queue_.scheduler());
}

Result<> NodeAgent::begin() {
  observer_.read_files();
  observer_.read_liveness();
  if (settings_.features != FeatureWay::nfd && !settings_.among_others) former_feature_.remove();
  if (node_feature_) {
    if (auto begun = node_feature_->begin(); !begun) return begun;
  }
  return watches_.begin();
}

void NodeAgent::leave(EventLoop::Job left) {
  if (std::exchange(leaves_, true)) return;
  // An artifact in use is pulled only with the rollout lease, which is given back.
  if (pulls_) pulls_->act({});
  left_ = std::move(left);
  leave_by_ = timers_.now() + kLeavePatience;
  leave_timer_.set(leave_by_, [this] { end(); });
  go_on_leaving();
}

std::optional<PullCounts> NodeAgent::pulls() const {
  return pulls_ ? std::optional(pulls_->counts()) : std::nullopt;
}

std::map<std::string, std::string> NodeAgent::vmis() const {
  const auto* const pods = watches_.pods();
  return pods == nullptr ? std::map<std::string, std::string>() : vmis_of(*pods);
}

Labels NodeAgent::node_labels() const {
  const json* const node = watches_.node();
  return node == nullptr ? Labels() : node_object_of(*node).labels;
}

void NodeAgent::reconcile_now() {
  if (leaves_) return go_on_leaving();
  const json* const node = watches_.node();
  if (node == nullptr) {
    if (watches_.lists_node() && !std::exchange(memory_.node_is_missing, true))
      spdlog::error(
          "there is no Node {}, so nothing is done; --node-name, or NODE_NAME, says which one this host is",
          settings_.node);
    return;
  }
  memory_.node_is_missing = false;
  // Until all sources of a desired state are known, the present desired.json stays.
  if (const auto until = watches_.unknown_until()) {
    if (*until != Moment::max()) queue_.requeue(*until);
    return;
  }
  patch_.observe(*node);
  observer_.read_liveness();
  act(reconcile_with(*node), *node);
}

ReconcileResult NodeAgent::reconcile_with(const json& node) {
  drop_unused_policies();
  ReconcileResult result = reconcile(observe(node));
  memory_.change = result.change_memory;
  return result;
}

NodeSnapshot NodeAgent::observe(const json& node) {
  NodeSnapshot snapshot;
  snapshot.now = timers_.now();
  snapshot.node = node_object_of(node);
  if (settings_.among_others) {
    for (const auto& label : {api::kWorkloadLabel, api::kPolicyLabel})
      snapshot.node.labels.erase(std::string(label));
  }
  snapshot.defaults = settings_.defaults;
  watches_.add_configurations(snapshot);
  for (const auto& file : settings_.config_files) {
    if (auto text = read_carried_text(file, "policy"))
      snapshot.configs.push_back(std::move(*text));
    else
      snapshot.unreadable.push_back(std::move(text).error());
  }
  snapshot.others = observe_others(node);
  snapshot.host = observer_.snapshot(snapshot.node);
  if (snapshot.kata) {
    if (pulls_) snapshot.kata->pulls = pulls_->states();
    snapshot.kata->unwritable = memory_.host.kata_unwritable;
  }
  if (leases_) snapshot.rollout = leases_->rollout();
  if (!settings_.among_others) snapshot.drain = observe_drain(node, snapshot);
  snapshot.features = settings_.features;
  snapshot.not_confidential = settings_.not_confidential;
  snapshot.sets_cc_mode = settings_.sets_cc_mode;
  if (memory_.change.waits_since) snapshot.paused = seconds_since(*memory_.change.waits_since);
  snapshot.memory = memory_;
  return snapshot;
}

std::chrono::seconds NodeAgent::seconds_since(Moment begin) const {
  return std::chrono::duration_cast<std::chrono::seconds>(timers_.now() - begin);
}

OtherPrograms NodeAgent::observe_others(const json& node) {
  OtherPrograms others;
  others.are_neighbours = settings_.among_others;
  const auto* const sets = watches_.daemon_sets();
  const auto* const pods = watches_.pods();
  const auto names = sets == nullptr ? std::set<std::string>() : metadata_of(*sets, "name");
  const bool of_the_operator = sets != nullptr && are_of_the_operator(names);
  if (pods != nullptr) {
    BelievedOwners believed = believed_owners(settings_.owner_spaces, settings_.operator_space);
    if (of_the_operator) {
      memory_.daemon_set_uids.merge(metadata_of(*sets, "uid"));
      believed.uids = memory_.daemon_set_uids;
    }
    others.pods = pods_of(*pods, believed, &node);
    log_doubts(*others.pods);
  }
  std::optional<Moment>& unserved_since = memory_.unserved_since;
  if (!others.pods || has_another_plugin(others)) {
    unserved_since.reset();
  } else {
    if (!unserved_since) unserved_since = timers_.now();
    others.unserved = seconds_since(*unserved_since);
  }
  if (of_the_operator) others.daemon_sets = names;
  return others;
}

/// Logs doubts, but only kMost of them: tenants can create any number of such pods.
void NodeAgent::log_doubts(const std::vector<PodOnNode>& pods) {
  constexpr std::size_t kMost = 100;
  std::set<std::string>& logged = memory_.doubts;
  for (const PodOnNode& pod : pods) {
    if (pod.doubt.empty() || logged.size() >= kMost) continue;
    if (logged.insert(pod.doubt).second) spdlog::warn("{}", pod.doubt);
  }
}

DrainSnapshot NodeAgent::observe_drain(const json& node, const NodeSnapshot& snapshot) {
  DrainSnapshot drain;
  drain.timeout = settings_.drain_timeout;
  drain.cordoned = is_cordoned(node);
  if (snapshot.others.pods) {
    std::vector<PodOnNode> pods = *snapshot.others.pods;
    // Asks only for the DaemonSets of pods that use refused GPUs: no other pod would be evicted.
    owners_.ask(settings_.drain_timeout ? owners_in_the_way(observer_.files(), pods)
                                        : std::set<NamedOwner>());
    for (PodOnNode& pod : pods)
      if (pod.controller && pod.kept.empty()) pod.kept = owners_.kept_because(*pod.controller);
    drain.pods = std::move(pods);
  }
  drain.eviction_refused = evictions_.refused();
  drain.delayed = evictions_.delayed();
  drain.cordon_refused = memory_.patch.refusals.cordon(timers_.now());
  drain.now = wall_clock_();

  // Only the first look at a drain, by this process, depends on the node's clock.
  const std::string annotation = value_of(snapshot.node.annotations, api::kDrainAnnotation);
  const auto mark = read_drain_mark(annotation);
  const auto longest = settings_.drain_timeout.value_or(std::chrono::seconds(0));
  if (std::exchange(memory_.drain_mark, annotation) != annotation && mark)
    memory_.drain_since = timers_.now() - std::min(drain_time(*mark, drain.now), longest);
  if (mark) drain.lasted = seconds_since(memory_.drain_since);
  return drain;
}

void NodeAgent::act(const ReconcileResult& result, const json& node) {
  // serving.json precedes all requests to the cluster: until then two device plugins displace each other.
  // If it cannot be written, that is tried again; the node's state is reported all the same.
  const auto served = write_serving(host_, result);
  if (!served) queue_.retry(served.error());
  if (patch_.is_sending()) return;  // its answer starts a reconcile
  // Evictions end before the Node and the Lease show that the drain is over.
  evictions_.leave_out_others(result.evict);
  // kata-classes.json is written before the Lease is given back and another node may begin.
  const bool kata_written = act_on_kata(result.kata);
  if (leases_ && (kata_written || !is_kata_configuration(result.lease.configuration)))
    leases_->act(result.lease, name_of(result.lease.configuration, result.desired_state.desired_policy));
  if (pulls_) pulls_->act(result.kata.pulls);
  if (patch_.act(result, node) || !act_on_desired_file(result)) return;
  observer_.read();
  evictions_.act(result.evict);
  if (node_feature_ && result.node_feature) node_feature_->keep(*result.node_feature, node);
  if (!served || !kata_written) return;
  queue_.forget();
  if (!result.requeue) return;
  spdlog::debug("the next reconcile, if nothing happens, is when {}", result.requeue->reason);
  queue_.requeue(timers_.now() + result.requeue->after);
}

/// Keeps the error of a write for the next snapshot, which reports a new one. False: there is an error, and
/// the write is tried again.
bool NodeAgent::is_written(const Result<>& written, std::string& unwritable) {
  const std::string why = written ? std::string() : written.error().text();
  if (!written) queue_.retry(written.error());
  if (std::exchange(unwritable, why) != why) queue_.schedule();
  return written.has_value();
}

bool NodeAgent::act_on_kata(const KataStep& step) {
  // A write of kata-classes.json makes hostd notice pulled artifacts.
  bool& fetched = memory_.host.fetched;
  fetched = (pulls_ && pulls_->take_news()) || fetched;
  const auto& written = observer_.files().kata_written;
  if (!step.file && !(fetched && written)) return true;
  if (!is_written(write_desired_classes(host_, step.file ? *step.file : *written),
                  memory_.host.kata_unwritable))
    return false;
  fetched = false;
  observer_.read();
  return true;
}

bool NodeAgent::act_on_desired_file(const ReconcileResult& result) {
  if (!is_written(write_desired_file(host_, result), memory_.host.unwritable)) return false;
  if (!result.desired_file) return true;
  auto& same = memory_.host.same;
  same.reset();  // generations begin anew after a removal
  // desired.json was written although the host is in the desired state: it has the same content in other
  // words.
  const auto& status = observer_.files().status;
  if (result.report.condition == NodeCondition::ready && status)
    same = {result.desired_file->generation.value_or(0), status->desired_generation().value_or(0)};
  return true;
}

// The end of an agent that has got SIGTERM. No change begins any more. Once hostd has ended its change or
// stopped, the agent undoes its own changes that no other program would undo: it resumes operands,
// uncordons the node, and gives back the node's rollout lease (LastLease).

/// Does all that is due now.
void NodeAgent::go_on_leaving() {
  if (patch_.is_sending() || is_undoing_) return;  // the answer comes back here
  const json* const node = watches_.node();
  const bool keeps = node != nullptr && !is_undone_ && !undoing(*node, true).is_null();
  const bool has_lease = node != nullptr && leases_ && leases_->may_have_one();
  if (!keeps && !has_lease) return end();
  observer_.read_liveness();
  const HostSide& host = observer_.files();
  const auto& kata = host.kata_written;
  const bool kata_is_open =
      host.kata.applying || (kata && kata->permitted && host.kata.generation != kata->generation);
  // The result matters to the cluster if there is a rollout lease, even if hostd has yet to begin.
  const bool is_at_work = host_is_changing(host) || (has_lease && (!has_answered(host) || kata_is_open));
  const Moment late = leave_by_ - kLastWord;
  if (is_at_work && observer_.hostd_runs() && timers_.now() < late) return queue_.requeue(late);
  // A change that will not begin justifies no eviction.
  evictions_.leave_out_others({});
  if (keeps) return undo(true);
  give_lease_back(*node);
}

/// If the server refuses the uncordon, the operands are resumed without it.
void NodeAgent::undo(bool with_cordon) {
  is_undoing_ = true;
  client_.change(
      kube::node_ref(settings_.node),
      [with_cordon](const json& now) -> Result<json> { return undoing(now, with_cordon); },
      [this, with_cordon](const Result<json>& changed) {
        is_undoing_ = false;
        is_undone_ = true;
        if (changed) return go_on_leaving();
        spdlog::error(
            "{} of Node {}: {}; the next agent takes that back, or whoever uncordons it, and takes {} off "
            "its labels {}*",
            with_cordon ? "a cordon, or pauses of operands, stay" : "pauses of operands stay", settings_.node,
            changed.error().text(), kPauseMark, api::kDeployPrefix);
        if (with_cordon && is_refusal(changed.error())) return undo(false);
        go_on_leaving();
      },
      watches_.node());
}

void NodeAgent::give_lease_back(const json& node) {
  if (leases_->is_writing()) return;  // the answer comes back here
  const NodeSnapshot snapshot = observe(node);
  if (!snapshot.rollout) return end();
  if (!snapshot.rollout->trouble.empty()) return keep_lease(snapshot.rollout->trouble);
  if (!snapshot.rollout->known) return;  // wait for the API server, or the deadline
  const LastLease last = last_lease(snapshot);
  if (last.lease.kind == RolloutStep::Kind::nothing) return end();
  if (last.kata) {
    if (auto written = write_desired_classes(host_, *last.kata); !written)
      return keep_lease(written.error().text());
  }
  leases_->act(last.lease, {});
}

void NodeAgent::keep_lease(const std::string& why) {
  spdlog::error("the rollout lease of Node {} is not freed: {}", settings_.node, why);
  end();
}

void NodeAgent::end() {
  leave_timer_.cancel();
  if (const auto left = std::exchange(left_, nullptr)) left();
}

}  // namespace ferry::agent
