// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "agent/cluster_objects.h"
#include "agent/desired_state/written_policy.h"
#include "agent/drain/evictions.h"
#include "agent/host_files.h"
#include "agent/labels/feature_file.h"
#include "agent/labels/node_feature.h"
#include "agent/node_refusals.h"
#include "agent/node_step.h"
#include "agent/rollout/rollout.h"
#include "agent/rollout/rollout_leases.h"
#include "api/files.h"
#include "api/host_status.h"
#include "api/labels.h"
#include "common/config/config_tree.h"
#include "hostfs/locks.h"
#include "kata-manager/controller/ready_handlers.h"
#include "kube/api_client.h"
#include "kube/api_error.h"
#include "kube/object_watch.h"

namespace ferry::agent {
namespace {

using nlohmann::json;
using Moment = kube::Timers::Clock::time_point;

// A new Role is not in force at once everywhere, nor on an API server that has just started.
constexpr std::chrono::minutes kForbiddenPatience{5};

// Much longer than the kernel takes between the close event of a file and the release of its lock.
constexpr std::chrono::seconds kReleased{1};

// Time for hostd to end a change and for the API server to be updated; shorter than the termination grace
// period.
constexpr std::chrono::seconds kLeavePatience{60};
// Part of kLeavePatience for the API server.
constexpr std::chrono::seconds kLastWord{10};

std::chrono::seconds since(Moment begin, Moment now) {
  return std::chrono::duration_cast<std::chrono::seconds>(now - begin);
}

std::string text_of(const Error& error) {
  return error.hint.empty() ? error.message : error.message + "; " + error.hint;
}

bool changes_the_error_alone(const NodeStep& step) {
  return step.labels.empty() && !step.unschedulable && step.annotations.size() == 1 &&
         step.annotations.contains(api::kErrorAnnotation);
}

/// The configuration's name for people; empty: not known here.
std::string name_of(const std::string& configuration, const DesiredPolicy& desired_policy) {
  if (is_kata_configuration(configuration)) return "Kata's runtimes";
  if (configuration.empty() || desired_policy.name.empty()) return {};
  return configuration == configuration_id(desired_policy.policy) ? desired_policy.name : std::string();
}

}  // namespace

class NodeAgent::Impl {
 public:
  Impl(HostFs& host, kube::ApiTransport& transport, kube::Timers& timers, kube::Random random,
       kube::EventRecorder::WallClock wall_clock, Settings settings)
      : host_(host),
        transport_(transport),
        timers_(timers),
        random_(std::move(random)),
        wall_clock_(wall_clock),
        settings_(std::move(settings)),
        client_(transport, timers, random_),
        events_(client_, timers, random_, wall_clock, settings_.node,
                [](const Error& error) { spdlog::warn("events are not shown: {}", text_of(error)); }),
        evictions_(client_, timers, random_, [this] { look_soon(); }),
        owners_(client_, timers, [this] { look_soon(); }),
        former_feature_(host, client_, timers, random_),
        host_since_(timers.now()),
        kata_since_(timers.now()),
        refusals_(random_) {
    if (settings_.fetcher != nullptr) {
      pulls_ = std::make_unique<ArtifactPulls>(host_, *settings_.fetcher, timers_, random_, settings_.pull,
                                               [this] { look_soon(); });
    }
    if (settings_.features == FeatureWay::nfd) {
      node_feature_ = std::make_unique<NodeFeature>(
          host_, transport_, client_, timers_, random_,
          NodeFeature::Settings{
              .node = settings_.node, .space = settings_.space, .owner = settings_.feature_owner},
          [this] { look_soon(); });
    }
    if (settings_.most_changing == 0) return;
    slots_ = std::make_unique<RolloutLeases>(
        transport_, client_, timers_, random_, std::move(wall_clock),
        RolloutLeases::Settings{
            .node = settings_.node, .space = settings_.space, .most = settings_.most_changing},
        [this] { look_soon(); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl(Impl&&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() {
    timers_.cancel(soon_);
    timers_.cancel(later_);
    timers_.cancel(see_again_);
    timers_.cancel(leave_timer_);
  }

  Result<> begin() {
    node_ = watch(kube::only(kube::node_ref(settings_.node)), nullptr, [this] {
      changed_.reset();
      heard_since_change_ = true;
    });
    if (!settings_.operator_space.empty() || settings_.drain_timeout) {
      // In all namespaces: a device plugin can be installed without the operator, in any namespace.
      kube::Selection pods = kube::pods_of_node(settings_.node);
      if (settings_.among_others) pods.space = settings_.operator_space;
      pods_ = watch(std::move(pods), &pods_forbidden_, {}, pod_fields());
    }
    if (!settings_.operator_space.empty() && !settings_.among_others)
      daemon_sets_ = watch({.kind = kube::kDaemonSets, .space = settings_.operator_space},
                           &daemon_sets_forbidden_, {}, daemon_set_fields());
    for (const std::string& name : settings_.config_maps) {
      auto& forbidden = config_maps_forbidden_[name];
      config_maps_.push_back(watch(kube::only(kube::config_map_ref(settings_.space, name)), &forbidden));
    }
    if (!settings_.kata_classes.empty())
      kata_ = watch(kube::only(kube::config_map_ref(settings_.kata_space, settings_.kata_classes)),
                    &kata_forbidden_);
    read_host();
    see_hostd();
    if (settings_.features != FeatureWay::file && !settings_.among_others) {
      if (auto removed = host_.remove_file(kFeatureFile); !removed)
        spdlog::warn("labels of a former agent stay: {}", text_of(removed.error()));
    }
    if (settings_.features != FeatureWay::nfd && !settings_.among_others) former_feature_.remove();
    if (node_feature_) {
      if (auto begun = node_feature_->begin(); !begun) return begun;
    }
    for (const auto& watch : watches()) {
      if (auto begun = watch->begin(); !begun) return begun;
    }
    return {};
  }

  void host_changed() {
    const bool news = read_host();
    if (see_hostd() || news) look_soon();
    see_hostd_again();
  }

  void configurations_changed() { look_soon(); }

  void leave(EventLoop::Job left) {
    if (left_) return;
    left_ = std::move(left);
    // An artifact in use is pulled only with the rollout lease, which is given back.
    if (pulls_) pulls_->act({});
    leave_by_ = timers_.now() + kLeavePatience;
    leave_timer_ = timers_.at(leave_by_, [this] { have_left(); });
    go_on_leaving();
  }

  std::optional<PullCounts> pulls() const { return pulls_ ? std::optional(pulls_->counts()) : std::nullopt; }

  std::map<std::string, std::string> vmis() const {
    return has_pods() ? vmis_of(pods_->objects()) : std::map<std::string, std::string>();
  }

 private:
  using Watch = std::unique_ptr<kube::ObjectWatch>;

  struct Refusal {
    Moment since;
    Error error;
  };
  /// Why the objects cannot be watched: RBAC, or a fault of the server; absent: no reason is known.
  using Forbidden = std::optional<Refusal>;

  Watch watch(kube::Selection selection, Forbidden* forbidden = nullptr, EventLoop::Job heard = {},
              kube::FieldChoice fields = kube::whole_object()) {
    const std::string what = selection.text();
    return std::make_unique<kube::ObjectWatch>(
        transport_, timers_, random_, std::move(selection),
        kube::ObjectWatch::Listener{
            .changed =
                [this, heard = std::move(heard)] {
                  if (heard) heard();
                  look_soon();
                },
            .trouble =
                [this, what, forbidden](const Error& error) {
                  spdlog::warn("watch {}: {}", what, text_of(error));
                  if (forbidden == nullptr) {
                    node_in_trouble_ = true;
                    return;
                  }
                  // Keeps the newest error, but the time of the first one of its kind.
                  const bool same = *forbidden && is_denied((*forbidden)->error) == is_denied(error);
                  forbidden->emplace(
                      Refusal{.since = same ? (*forbidden)->since : timers_.now(), .error = error});
                  look_soon();
                },
            .well =
                [this, what, forbidden] {
                  spdlog::info("watch {}: the API server answers again", what);
                  if (forbidden == nullptr) {
                    node_in_trouble_ = false;
                    node_well_since_ = timers_.now();
                  } else {
                    forbidden->reset();
                  }
                  look_soon();
                }},
        std::move(fields));
  }

  /// The server has more objects than the agent keeps, so the known ones are out of date.
  static bool is_too_large(const Forbidden& forbidden) {
    return forbidden && forbidden->error.code == kube::ApiErrc::too_large;
  }

  static bool is_denied(const Error& error) { return error.code == kube::ApiErrc::forbidden; }

  /// True if the objects are known, or waiting is useless: RBAC forbids them, or the server reports the Node
  /// and not them. If the server reports nothing at all, the agent waits.
  bool is_known(const Watch& watch, const Forbidden& forbidden) {
    if (!watch || watch->listed() || is_too_large(forbidden)) return true;
    if (!forbidden || (!is_denied(forbidden->error) && node_in_trouble_)) return false;
    const Moment end = end_of_patience(*forbidden);
    if (timers_.now() >= end) return true;
    look_again_at(end);
    return false;
  }

  /// The time in which the server reported nothing at all does not count.
  Moment end_of_patience(const Refusal& refusal) const {
    const Moment since = is_denied(refusal.error) ? refusal.since : std::max(refusal.since, node_well_since_);
    return since + kForbiddenPatience;
  }

  static bool is_listed(const Watch& watch, const Forbidden& forbidden) {
    return watch != nullptr && watch->listed() && !is_too_large(forbidden);
  }
  bool has_pods() const { return is_listed(pods_, pods_forbidden_); }
  bool has_daemon_sets() const { return is_listed(daemon_sets_, daemon_sets_forbidden_); }

  std::vector<kube::ObjectWatch*> watches() const {
    std::vector<kube::ObjectWatch*> out = {node_.get()};
    for (const Watch* maybe : {&pods_, &daemon_sets_, &kata_})
      if (*maybe != nullptr) out.push_back(maybe->get());
    for (const Watch& config_map : config_maps_) out.push_back(config_map.get());
    return out;
  }

  /// True if the host's files have changed.
  bool read_host() {
    std::string said;
    for (const char* file : {api::kDesiredFile, api::kStatusFile})
      said += host_.read_file(file).value_or("") + "\n";
    const bool news = std::exchange(host_said_, said) != said;
    // A start of the container runtime is no answer from hostd, so Kata's files are timed separately.
    std::string kata;
    for (const char* file : {api::kReadyHandlersFile, api::kDesiredClassesFile})
      kata += host_.read_file(file).value_or("") + "\n";
    const bool kata_news = std::exchange(kata_said_, kata) != kata;
    if (!kata_news && !news) return false;
    if (news) host_since_ = timers_.now();
    if (kata_news) kata_since_ = timers_.now();
    const auto generation = written_generation();
    auto now = read_host_side(host_);
    if (now) host_side_ = std::move(*now);
    if (!now) spdlog::error("{}", text_of(now.error()));
    const bool another = written_generation() != generation;
    if (another || !is_open(host_side_)) ends_ = 0;
    if (another) has_failed_ = false;
    if (says_that_it_failed(host_side_)) has_failed_ = true;
    if (change_outcome(host_side_) == ChangeOutcome::done) has_failed_ = false;
    if (host_.read_file(api::kStatusFile).value_or("") != last_words_) last_words_.reset();
    return true;
  }

  std::optional<std::uint64_t> written_generation() const {
    return host_side_.written ? host_side_.written->generation : std::nullopt;
  }

  /// True if hostd has yet to report the result of desired.json.
  static bool is_open(const HostSide& host) {
    return host.written && (!has_answered(host) || host_is_changing(host));
  }

  /// True if hostd has started or stopped. If its lock cannot be checked, hostd counts as running.
  bool see_hostd() {
    const auto runs = is_present(host_, api::kHostdLiveness);
    const bool down = runs && !*runs;
    if (down == hostd_down_since_.has_value()) return false;
    hostd_down_since_.reset();
    if (down) {
      hostd_down_since_ = timers_.now();
      read_host();
      if (is_open(host_side_)) ++ends_;
      last_words_ = host_.read_file(api::kStatusFile).value_or("");
    }
    see_hostd_again();
    return true;
  }

  /// A close event comes before the release of the lock. Also, another process that checked the lock at the
  /// same moment looked like hostd.
  void see_hostd_again() {
    timers_.cancel(see_again_);
    see_again_ = timers_.at(timers_.now() + kReleased, [this] {
      if (see_hostd()) look_soon();
    });
  }

  void look_soon() {
    if (std::exchange(look_waits_, true)) return;
    soon_ = timers_.at(timers_.now(), [this] {
      look_waits_ = false;
      look();
    });
  }

  void look_again_at(Moment when) {
    timers_.cancel(later_);
    later_ = timers_.at(when, [this] { look_soon(); });
  }

  void miss_node() {
    if (!node_->listed() || std::exchange(node_missed_, true)) return;
    spdlog::error(
        "there is no Node {}, so nothing is done; --node-name, or NODE_NAME, says which one this host is",
        settings_.node);
  }

  /// Null: there is no such Node, or it is not listed yet.
  const json* node() const {
    if (changed_) return &*changed_;
    const auto& nodes = node_->objects();
    const auto found = nodes.find(settings_.node);
    return found == nodes.end() ? nullptr : &found->second;
  }

  NodeSnapshot view_of(const json& node) {
    NodeSnapshot view;
    view.node = node_object_of(node);
    if (settings_.among_others) {
      for (const auto& label : {api::kWorkloadLabel, api::kPolicyLabel})
        view.node.labels.erase(std::string(label));
    }
    view.defaults = settings_.defaults;
    for (const Forbidden* const forbidden : {&pods_forbidden_, &daemon_sets_forbidden_})
      if (is_too_large(*forbidden)) view.incomplete = (*forbidden)->error;
    for (std::size_t i = 0; i < config_maps_.size(); ++i) {
      const Forbidden& forbidden = config_maps_forbidden_.at(settings_.config_maps[i]);
      if (forbidden && !is_listed(config_maps_[i], forbidden)) {
        view.unreadable.push_back(forbidden->error);
        continue;
      }
      for (const auto& [name, object] : config_maps_[i]->objects()) {
        std::ranges::move(configurations_of(object), std::back_inserter(view.configs));
        std::ranges::move(passed_over_of(object), std::back_inserter(view.passed_over));
      }
    }
    for (const auto& file : settings_.config_files) {
      if (auto text = read_carried_text(file, "policy"))
        view.configs.push_back(std::move(*text));
      else
        view.unreadable.push_back(std::move(text).error());
    }
    if (has_pods()) view.others.pods = pods_of(pods_->objects(), believed_owners());
    if (view.others.pods) tell_doubts(*view.others.pods);
    view.others.are_neighbours = settings_.among_others;
    see_other_plugins(view.others);
    if (has_daemon_sets()) {
      if (auto names = names_of(daemon_sets_->objects()); are_of_the_operator(names))
        view.others.daemon_sets = std::move(names);
    }
    view.host = host_side_;
    view.host.unwritable = unwritable_;
    if (same_ && host_side_.written && host_side_.written->generation == same_->first)
      view.host.same_as = same_->second;
    view.host.silent = since(host_since_, timers_.now());
    view.host.ends = ends_;
    view.host.has_failed = has_failed_;
    if (hostd_down_since_) view.host.hostd_down = since(*hostd_down_since_, timers_.now());
    if (auto unlisted = unknown_to_kubelet(view.node, host_side_.kata.ready); unlisted != unlisted_) {
      unlisted_ = std::move(unlisted);
      unlisted_since_ = timers_.now();
    }
    if (!unlisted_.empty()) view.host.kata_unlisted = since(unlisted_since_, timers_.now());
    view.host.kata_silent = since(kata_since_, timers_.now());
    if (kata_) view.kata = kata_view();
    view.host.hostd_speaks = !hostd_down_since_ && !last_words_;
    if (slots_) view.rollout = slots_->rollout();
    if (!settings_.among_others) view.drain = drain_view_of(node);
    view.told = told_;
    view.features = settings_.features;
    view.labels_refused = refusals_.labels(timers_.now());
    view.own_refused = refusals_.own(timers_.now());
    if (awaits_since_) view.paused = since(*awaits_since_, timers_.now());
    view.failure_is_news =
        view.host.hostd_speaks && host_side_.written && refused_ == host_side_.written->generation;
    return view;
  }

  BelievedOwners believed_owners() {
    BelievedOwners out{.spaces = {settings_.owner_spaces.begin(), settings_.owner_spaces.end()},
                       .operator_space = settings_.operator_space};
    if (!settings_.operator_space.empty()) out.spaces.insert(settings_.operator_space);
    if (has_daemon_sets() && are_of_the_operator(names_of(daemon_sets_->objects()))) {
      daemon_set_uids_.merge(uids_of(daemon_sets_->objects()));
      out.uids = daemon_set_uids_;
    }
    return out;
  }

  void see_other_plugins(OtherPrograms& others) {
    if (!others.pods || has_another_plugin(others)) {
      unserved_since_.reset();
      return;
    }
    if (!unserved_since_) unserved_since_ = timers_.now();
    others.unserved = since(*unserved_since_, timers_.now());
  }

  KataSnapshot kata_view() {
    KataSnapshot view;
    view.source.name = fmt::format("ConfigMap {}/{}", settings_.kata_space, settings_.kata_classes);
    // The GPUs' desired state does not wait for Kata's ConfigMap, so the latter may be unknown here.
    view.source.is_known = is_known(kata_, kata_forbidden_);
    if (view.source.is_known && kata_forbidden_ && !is_listed(kata_, kata_forbidden_))
      view.source.trouble = text_of(kata_forbidden_->error);
    for (const auto& [name, object] : kata_->objects())
      std::ranges::move(configurations_of(object), std::back_inserter(view.source.texts));
    if (pulls_) view.pulls = pulls_->states();
    view.unwritable = kata_unwritable_;
    return view;
  }

  DrainSnapshot drain_view_of(const json& node) {
    DrainSnapshot view;
    view.timeout = settings_.drain_timeout;
    view.cordoned = is_cordoned(node);
    if (has_pods()) view.pods = drain_pods(node);
    view.eviction_refused = evictions_.refused();
    view.delayed = evictions_.delayed();
    view.cordon_refused = refusals_.cordon(timers_.now());
    view.now = wall_clock_();
    return view;
  }

  /// Asks only for the DaemonSets of pods that use refused GPUs: no other pod would be evicted.
  std::vector<NodePod> drain_pods(const json& node) {
    std::vector<NodePod> pods = node_pods_of(pods_->objects(), node);
    owners_.ask(settings_.drain_timeout ? owners_in_the_way(host_side_, pods) : std::set<NamedOwner>());
    for (NodePod& pod : pods)
      if (pod.daemon_set && pod.kept.empty()) pod.kept = owners_.kept_because(*pod.daemon_set);
    return pods;
  }

  /// Logs doubts, but only kMost of them: tenants can create any number of such pods.
  void tell_doubts(const std::vector<PodOnNode>& pods) {
    constexpr std::size_t kMost = 100;
    for (const PodOnNode& pod : pods) {
      if (pod.doubt.empty() || doubts_told_.size() >= kMost) continue;
      if (doubts_told_.insert(pod.doubt).second) spdlog::warn("{}", pod.doubt);
    }
  }

  NodeStep step_of(const json& node) {
    NodeStep step = node_step(view_of(node));
    refusals_.leave_out(step, timers_.now());
    // From the first wait for operands until desired.json is written or needs no write.
    if (step.awaits_operands && !awaits_since_) awaits_since_ = timers_.now();
    if (!step.awaits_operands && !step.desired_file) awaits_since_.reset();
    remember_outcome(step);
    return step;
  }

  /// A refused change that later fails without a rollout lease is reported to the other nodes, but once only:
  /// a person may remove the verdict. A failure after success is this node's own trouble.
  void remember_outcome(const NodeStep& step) {
    if (!host_side_.written) return;
    if (step.outcome == ChangeOutcome::blocked) refused_ = host_side_.written->generation;
    if (step.outcome == ChangeOutcome::done || step.failure_is_told) refused_.reset();
  }

  /// The patch that reverts changes of the agent which no other program would revert: pauses and the cordon.
  static json taken_back(const json& node, bool with_cordon) {
    const policy::NodeObject now = node_object_of(node);
    const DrainStep drain = with_cordon ? drain_undone(now, is_cordoned(node)) : DrainStep();
    return patch_of(resume_operands(now.labels), drain.annotations, drain.unschedulable);
  }

  void go_on_leaving() {
    if (changing_) return;  // its answer starts a reconcile
    const json* const object = node_ ? node() : nullptr;
    const bool keeps = object != nullptr && !is_taken_back_ && !taken_back(*object, true).is_null();
    const bool has_turn = object != nullptr && slots_ && slots_->may_have_one();
    if (!keeps && !has_turn) return have_left();
    see_hostd();
    const Moment late = leave_by_ - kLastWord;
    if (is_at_work(host_side_, has_turn) && !hostd_down_since_ && timers_.now() < late)
      return look_again_at(late);
    // A change that will not begin justifies no eviction.
    evictions_.leave_out_others({});
    if (keeps) return take_back(true);
    give_turn_back(*object);
  }

  /// If the node has a rollout lease, its result matters to the cluster, even if hostd has yet to begin.
  static bool is_at_work(const HostSide& host, bool in_turn) {
    return host_is_changing(host) || (in_turn && (!has_answered(host) || is_permitted_at_work(host)));
  }

  static bool is_permitted_at_work(const HostSide& host) {
    const auto& written = host.kata_written;
    return host.kata.changing ||
           (written && written->permitted && host.kata.generation != written->generation);
  }

  void give_turn_back(const json& node) {
    if (slots_->is_writing()) return;  // its answer starts a reconcile
    const NodeSnapshot view = view_of(node);
    if (!view.rollout) return have_left();
    if (!view.rollout->trouble.empty()) return keep_turn(view.rollout->trouble);
    if (!view.rollout->known) return;  // wait for the API server, or the deadline
    const LastLease last = last_lease(view);
    if (last.lease.kind == RolloutStep::Kind::nothing) return have_left();
    if (last.kata) {
      if (auto written = write_desired_classes(host_, *last.kata); !written)
        return keep_turn(text_of(written.error()));
    }
    slots_->act(last.lease, {});
  }

  void keep_turn(const std::string& why) {
    spdlog::error("the turn of Node {} is not given back: {}", settings_.node, why);
    have_left();
  }

  /// If the server refuses the uncordon, the operands are resumed without it.
  void take_back(bool with_cordon) {
    changing_ = true;
    client_.change(
        kube::node_ref(settings_.node),
        [with_cordon](const json& now) -> Result<json> { return taken_back(now, with_cordon); },
        [this, with_cordon](const Result<json>& changed) {
          changing_ = false;
          is_taken_back_ = true;
          if (changed) return go_on_leaving();
          spdlog::error(
              "{} of Node {}: {}; the next agent takes that back, or whoever uncordons it, and takes {} off "
              "its "
              "labels {}*",
              with_cordon ? "a cordon, or pauses of operands, stay" : "pauses of operands stay",
              settings_.node, text_of(changed.error()), kPauseMark, api::kDeployPrefix);
          const bool refused = changed.error().code == kube::ApiErrc::forbidden ||
                               changed.error().code == kube::ApiErrc::invalid;
          if (with_cordon && refused) return take_back(false);
          go_on_leaving();
        },
        node());
  }

  void have_left() {
    timers_.cancel(leave_timer_);
    if (!leave_told_) left_();
    leave_told_ = true;
  }

  void look() {
    if (left_) return go_on_leaving();
    const json* const object = node();
    if (object == nullptr) return miss_node();
    node_missed_ = false;
    // Until all sources of a desired state are known, the present desired.json stays.
    for (std::size_t i = 0; i < config_maps_.size(); ++i)
      if (!is_known(config_maps_[i], config_maps_forbidden_.at(settings_.config_maps[i]))) return;
    if (!is_known(pods_, pods_forbidden_) || !is_known(daemon_sets_, daemon_sets_forbidden_)) return;
    tell_if_shown(*object);
    see_hostd();
    const NodeStep step = step_of(*object);
    // A file that cannot be written is tried again; the node's state is reported all the same.
    const auto files = write_status_files(host_, step.files);
    if (!files) failed(files.error());
    // serving.json precedes all requests to the cluster: until then two device plugins displace each other.
    const auto served = write_serving(host_, step);
    if (!served) failed(served.error());
    if (changing_) return;  // its answer starts a reconcile
    // Evictions end before the Node and the Lease show that the drain is over.
    evictions_.leave_out_others(step.evict);
    // kata-classes.json is written before the Lease is given back and another node may begin.
    const bool kata_written = keep_desired_classes(step.kata);
    if (slots_ && (kata_written || !is_kata_configuration(step.lease.configuration)))
      slots_->act(step.lease, name_of(step.lease.configuration, step.desired_state.desired_policy));
    if (pulls_) pulls_->act(step.kata.pulls);
    const json patch = patch_of(step.labels, step.annotations, step.unschedulable);
    const bool in_vain = refusals_.is_all_left_out(timers_.now());
    const bool undone = (!patch.is_null() && patch == patch_ && timers_.now() < patch_again_) ||
                        has_just_said_another(step) || in_vain;
    if (!patch.is_null() && !undone) return change_node(*object);
    if (patch.is_null()) sent_.reset();
    if (patch.is_null() && refusals_.may_forget_own(timers_.now())) forget_refusal();
    if (!undone || in_vain) tell(step);
    if (auto written = write_desired_file(host_, step); !written) {
      std::string why = text_of(written.error());
      const bool news = why != unwritable_;
      unwritable_ = std::move(why);
      failed(written.error());
      if (news) look_soon();  // to report it
      return;
    }
    if (!std::exchange(unwritable_, {}).empty()) look_soon();
    // desired.json was written although the host is in the desired state: it has the same content in other
    // words.
    if (step.desired_file && step.report.condition == NodeCondition::ready && host_side_.status)
      same_ = {step.desired_file->generation.value_or(0),
               host_side_.status->desired_generation().value_or(0)};
    host_changed();
    evictions_.act(step.evict);
    if (auto kept = keep_feature_file(step.feature_file); !kept) return failed(kept.error());
    if (node_feature_ && step.node_feature) node_feature_->keep(*step.node_feature, *object);
    if (!files || !served || !kata_written) return;
    backoff_.reset();
    wait_for(*object, step, undone);
  }

  /// False: kata-classes.json could not be written, which is tried again.
  bool keep_desired_classes(const KataStep& step) {
    // A write of kata-classes.json makes hostd notice pulled artifacts.
    fetched_ = (pulls_ && pulls_->take_news()) || fetched_;
    const auto& written = host_side_.kata_written;
    if (!step.file && !(fetched_ && written)) return true;
    if (auto done = write_desired_classes(host_, step.file ? *step.file : *written); !done) {
      const std::string why = text_of(done.error());
      if (std::exchange(kata_unwritable_, why) != why) look_soon();  // to report it
      failed(done.error());
      return false;
    }
    fetched_ = false;
    if (!std::exchange(kata_unwritable_, {}).empty()) look_soon();
    host_changed();
    return true;
  }

  /// To be called once the agent's own feature labels are off the Node: later it would remove NFD's.
  Result<> keep_feature_file(const std::optional<Labels>& labels) {
    if (!labels) return {};
    const bool is_so = feature_file_ == labels && host_.exists(kFeatureFile) != labels->empty();
    if (is_so && timers_.now() < feature_file_again_) return {};
    if (auto written = write_feature_file(host_, *labels, wall_clock_()); !written) return written;
    feature_file_ = labels;
    feature_file_again_ = timers_.now() + kFeatureFileRenewal;
    return {};
  }

  void change_node(const json& object) {
    changing_ = true;
    heard_since_change_ = false;
    client_.change(
        kube::node_ref(settings_.node),
        [this](const json& now) -> Result<json> {
          tell_if_shown(now);
          if (left_) return json();  // a retry would begin a change
          sent_ = step_of(now);
          return patch_of(sent_->labels, sent_->annotations, sent_->unschedulable);
        },
        [this](Result<json> changed) {
          changing_ = false;
          if (!changed) return not_changed(changed.error());
          if (sent_) refusals_.take(*sent_);
          if (sent_) node_shows(*std::exchange(sent_, {}));
          // The watch may have reported later changes before this answer came.
          if (!heard_since_change_) changed_ = std::move(*changed);
          look_soon();
        },
        &object);
  }

  void not_changed(const Error& error) {
    const bool refused = error.code == kube::ApiErrc::forbidden || error.code == kube::ApiErrc::invalid;
    if (!refused || !sent_) return failed(error);
    // An admission policy may forbid a part of the patch. The other parts are sent without it.
    const NodeStep sent = std::move(*sent_);
    sent_.reset();
    spdlog::error("{}", text_of(error));
    refusals_.refuse(sent, text_of(error), timers_.now());
    look_soon();
  }

  /// To be called when the Node shows the agent's labels, or none are to be set.
  void forget_refusal() {
    refusals_.forget_own();
    told_in_vain_.clear();
  }

  /// The message may differ in each reconcile, as if a GPU is in use by a new process each time.
  bool has_just_said_another(const NodeStep& step) const {
    return changes_the_error_alone(step) && timers_.now() < error_again_;
  }

  void error_shown() {
    constexpr std::chrono::seconds kFirst{2};
    constexpr std::chrono::seconds kLongest{20};
    const Moment now = timers_.now();
    error_pause_ = now > error_again_ + kLongest ? kFirst : std::clamp(error_pause_ * 2, kFirst, kLongest);
    error_again_ = now + error_pause_;
  }

  void node_shows(const NodeStep& sent) {
    constexpr std::chrono::minutes kInARow{10};
    tell(sent);
    if (has_own_labels(sent)) forget_refusal();
    if (changes_the_error_alone(sent)) error_shown();
    json patch = patch_of(sent.labels, sent.annotations, sent.unschedulable);
    if (patch.is_null()) return;
    // Other programs may revert the patch: the same patch is not sent again at once.
    const Moment now = timers_.now();
    const bool again = patch == patch_ && now - patch_at_ < kInARow;
    if (!again) repeats_.reset();
    patch_again_ = again ? now + repeats_.next(random_) : now;
    patch_at_ = now;
    patch_ = std::move(patch);
  }

  /// A patch whose answer was lost has been applied: its events are recorded now.
  void tell_if_shown(const json& object) {
    if (!sent_ || (sent_->labels.empty() && sent_->annotations.empty())) return;
    const policy::NodeObject now = node_object_of(object);
    if (with_changes(now.labels, sent_->labels) != now.labels ||
        with_changes(now.annotations, sent_->annotations) != now.annotations)
      return;
    const NodeStep shown = std::move(*sent_);
    sent_.reset();
    node_shows(shown);
  }

  /// While the Node accepts no changes, the agent itself remembers which events it recorded.
  bool is_news(const NodeEvent& event) {
    constexpr std::size_t kMost = 100;
    if (refusals_.remembers(timers_.now())) return true;
    if (told_in_vain_.size() >= kMost) told_in_vain_.clear();
    return told_in_vain_.insert(event.reason + " " + event.message).second;
  }

  void tell(const NodeStep& step) {
    for (const NodeEvent& event : step.events) {
      if (!is_news(event)) continue;
      spdlog::log(event.warning ? spdlog::level::warn : spdlog::level::info, "{}: {}", event.reason,
                  event.message);
      events_.record(event.warning ? kube::EventRecorder::Type::warning : kube::EventRecorder::Type::normal,
                     event.reason, event.message);
    }
    told_ = {step.desired_state.warnings.begin(), step.desired_state.warnings.end()};
  }

  /// Sets the timer for deadlines that no watch reports, as for a silent hostd.
  void wait_for(const json& object, const NodeStep& step, bool undone) {
    constexpr std::chrono::seconds kBeyond{1};
    std::optional<Moment> first;
    const auto look_at = [&](Moment when) {
      if (when > timers_.now()) first = first ? std::min(*first, when) : when;
    };
    if (step.kata.awaits_kubelet) look_at(unlisted_since_ + kListPatience + kBeyond);
    if (unserved_since_ && !step.standby) look_at(*unserved_since_ + kUnservedPatience);
    if (undone) look_at(patch_again_);
    if (undone) look_at(error_again_);
    if (hostd_down_since_) look_at(*hostd_down_since_ + kGonePatience + kBeyond);
    if (step.drain_left) look_at(timers_.now() + *step.drain_left + kBeyond);
    if (kata_ && !kata_->listed() && kata_forbidden_) look_at(end_of_patience(*kata_forbidden_));
    std::ranges::for_each(refusals_.moments(), look_at);
    if (step.feature_file) look_at(feature_file_again_);
    if (awaits_since_) look_at(*awaits_since_ + kPausePatience + kBeyond);
    // Operands must not stay paused for a silent host, whatever the desired state is by now.
    const bool paused = !resume_operands(node_object_of(object).labels).empty();
    if (paused) look_at(host_since_ + kPausePatience + kBeyond);
    if (step.kata.awaited) look_at(kata_since_ + *step.kata.awaited + kBeyond);
    if (paused || step.report.condition == NodeCondition::pending ||
        step.report.condition == NodeCondition::applying) {
      look_at(host_since_ + (has_answered(host_side_) ? kChangePatience : kAnswerPatience) + kBeyond);
    }
    timers_.cancel(later_);
    if (first) look_again_at(*first);
  }

  void failed(const Error& error) {
    spdlog::error("{}", text_of(error));
    look_again_at(timers_.now() + backoff_.next(random_));
  }

  HostFs& host_;
  kube::ApiTransport& transport_;
  kube::Timers& timers_;
  const kube::Random random_;
  const kube::EventRecorder::WallClock wall_clock_;
  const Settings settings_;
  kube::ApiClient client_;
  kube::EventRecorder events_;
  Evictions evictions_;
  NamedDaemonSets owners_;  ///< of pods that use GPUs
  std::unique_ptr<RolloutLeases> slots_;
  std::unique_ptr<NodeFeature> node_feature_;  ///< null: not configured
  FormerNodeFeature former_feature_;
  Watch node_;
  Watch pods_;  ///< null: no operator and no drain
  Watch daemon_sets_;
  Watch kata_;  ///< null: Kata's classes are not managed
  Forbidden kata_forbidden_;
  std::unique_ptr<ArtifactPulls> pulls_;  ///< null: nothing is pulled
  std::vector<Watch> config_maps_;
  std::map<std::string, Forbidden> config_maps_forbidden_;  ///< by name
  Forbidden pods_forbidden_;
  Forbidden daemon_sets_forbidden_;
  bool node_in_trouble_ = false;  ///< the watch of the Node has an error too
  Moment node_well_since_;        ///< end of the last such error

  HostSide host_side_;
  std::string host_said_ = "nothing yet";
  std::string kata_said_;
  std::string unwritable_;       ///< HostSide::unwritable, of the last try
  std::string kata_unwritable_;  ///< KataSnapshot::unwritable, of the last try
  Moment host_since_;
  std::optional<Moment> hostd_down_since_;  ///< absent: hostd runs
  int ends_ = 0;                            ///< HostSide::ends
  bool has_failed_ = false;                 ///< HostSide::has_failed
  Moment kata_since_;                       ///< start of HostSide::kata_silent
  std::set<std::string> daemon_set_uids_;   ///< present and former ones of the operator
  std::set<std::string> unlisted_;          ///< ready handlers that the kubelet does not list
  Moment unlisted_since_;                   ///< start of HostSide::kata_unlisted
  bool fetched_ = false;                    ///< hostd has to notice a pulled artifact
  std::optional<std::string> last_words_;   ///< status.json of a hostd that has ended; absent: it is newer
  /// Generations of desired.json: the written one, and the one with the same content in other words.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> same_;
  std::optional<Moment> unserved_since_;  ///< start of OtherPrograms::unserved; absent: 0 or unknown
  std::optional<Moment> awaits_since_;    ///< start of NodeStep::awaits_operands
  std::set<std::string> told_;
  std::set<std::string> doubts_told_;  ///< logged PodOnNode::doubt
  std::optional<std::uint64_t>
      refused_;  ///< generation of desired.json that was refused, and is not done yet

  std::optional<Labels> feature_file_;  ///< its content; absent: unknown
  Moment feature_file_again_;           ///< when it is renewed

  NodeRefusals refusals_;
  std::set<std::string> told_in_vain_;  ///< events recorded while the Node does not show them

  bool node_missed_ = false;  ///< and that was logged
  bool look_waits_ = false;
  bool changing_ = false;
  std::optional<NodeStep> sent_;  ///< of the patch under way, or whose answer was lost
  json patch_;                    ///< the last successful one
  Moment patch_at_;
  Moment patch_again_;  ///< not sent again before
  kube::Backoff repeats_;
  Moment error_again_;  ///< the error alone is not changed before
  std::chrono::seconds error_pause_{0};
  std::optional<json> changed_;  ///< the Node after the last patch, until the watch reports it
  bool heard_since_change_ = false;
  kube::Backoff backoff_;
  EventLoop::Job left_;  ///< empty: the agent stays
  Moment leave_by_;
  bool is_taken_back_ = false;  ///< taken_back() is done, or failed
  bool leave_told_ = false;
  kube::Timers::Timer leave_timer_;
  kube::Timers::Timer soon_;
  kube::Timers::Timer later_;
  kube::Timers::Timer see_again_;
};

NodeAgent::NodeAgent(HostFs& host, kube::ApiTransport& transport, kube::Timers& timers, kube::Random random,
                     kube::EventRecorder::WallClock wall_clock, Settings settings)
    : impl_(std::make_unique<Impl>(host, transport, timers, std::move(random), std::move(wall_clock),
                                   std::move(settings))) {}
NodeAgent::~NodeAgent() = default;

Result<> NodeAgent::begin() {
  return impl_->begin();
}

void NodeAgent::host_changed() {
  impl_->host_changed();
}

void NodeAgent::leave(EventLoop::Job left) {
  impl_->leave(std::move(left));
}

void NodeAgent::configurations_changed() {
  impl_->configurations_changed();
}

std::optional<PullCounts> NodeAgent::pulls() const {
  return impl_->pulls();
}

std::map<std::string, std::string> NodeAgent::vmis() const {
  return impl_->vmis();
}

}  // namespace ferry::agent
