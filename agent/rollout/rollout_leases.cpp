// SPDX-License-Identifier: Apache-2.0
#include "agent/rollout/rollout_leases.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/node_refusals.h"
#include "agent/node_report.h"
#include "api/labels.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "kube/api_error.h"
#include "kube/object_watch.h"

namespace ferry::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestResult = 400;

const json& annotations_of(const json& lease) {
  return json_at(json_at(lease, "metadata"), "annotations");
}

/// A text that changes with each write of the lease's holder.
std::string sign_of_life(const json& lease) {
  const json& spec = json_at(lease, "spec");
  return text_at(spec, "holderIdentity") + " " + text_at(spec, "renewTime") + " " +
         text_at(annotations_of(lease), api::kLeaseConfiguration);
}

/// A merge patch that gives the lease to `node`. `lease`: the present object; null: there is none. `policy`:
/// its name, for people; empty: unchanged.
json patch_to_take(const json& lease, const std::string& node, const std::string& configuration,
                   const std::string& policy, std::chrono::system_clock::time_point time) {
  // The format of metav1.MicroTime.
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  constexpr std::int64_t kMicros = 1'000'000;
  const std::string now =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)),
                  micros % kMicros);

  const json& before = json_at(lease, "spec");
  json spec = {{"holderIdentity", node}, {"leaseDurationSeconds", kLeaseLife.count()}, {"renewTime", now}};
  if (text_at(before, "holderIdentity") != node) {
    const json& transitions = json_at(before, "leaseTransitions");
    constexpr std::int64_t kMost = 1'000'000;
    spec["acquireTime"] = now;
    spec["leaseTransitions"] =
        transitions.is_number_integer() ? std::min(transitions.get<std::int64_t>(), kMost) + 1 : 0;
  }
  json annotations = {{api::kLeaseConfiguration, configuration}};
  if (!policy.empty()) annotations[api::kLeasePolicy] = policy;
  return {{"spec", std::move(spec)}, {"metadata", {{"annotations", std::move(annotations)}}}};
}

}  // namespace

kube::ObjectRef rollout_lease_ref(const std::string& space, std::size_t index) {
  return {.kind = kube::kLeases, .space = space, .name = fmt::format("{}{}", kRolloutLeasePrefix, index)};
}

kube::Selection rollout_lease_objects(const std::string& space) {
  return {.kind = kube::kLeases, .space = space, .labels = api::kRolloutLeaseLabel};
}

std::optional<RolloutLease> rollout_lease_of(const json& lease) {
  const std::string name = text_at(json_at(lease, "metadata"), "name");
  const std::string_view prefix = kRolloutLeasePrefix;
  if (!name.starts_with(prefix)) return std::nullopt;
  RolloutLease out;
  const auto index = whole_number<std::size_t>(std::string_view(name).substr(prefix.size()));
  if (!index || name != fmt::format("{}{}", prefix, *index)) return std::nullopt;
  out.index = *index;
  out.holder = text_at(json_at(lease, "spec"), "holderIdentity");
  out.configuration = text_at(annotations_of(lease), api::kLeaseConfiguration);
  return out;
}

void read_canary_results(const json& lease, CanaryResults& out) {
  const auto rollout_lease = rollout_lease_of(lease);
  const json& annotations = annotations_of(lease);
  if (!rollout_lease || rollout_lease->index != 0) return;
  const std::string_view passed = kPassedPrefix;
  const std::string_view failed = kFailedPrefix;
  for (const auto& [key, value] : annotations.items()) {
    if (!value.is_string()) continue;
    if (key.starts_with(passed)) out.passed.insert(key.substr(passed.size()));
    if (key.starts_with(failed)) out.failed[key.substr(failed.size())] = value.get<std::string>();
  }
}

json patch_to_report(const json& lease, const std::string& node, const std::string& configuration,
                     const std::string& result) {
  const std::string passed = kPassedPrefix + configuration;
  const std::string failed = kFailedPrefix + configuration;
  json changes = json::object();
  const json& annotations = annotations_of(lease);
  if (result.empty()) {
    if (!annotations.contains(passed)) changes[passed] = node;
    // A failure on another node stays: only that node's own success removes it.
    if (text_at(annotations, failed.c_str()).starts_with(node + ":")) changes[failed] = nullptr;
  } else {
    changes[failed] = one_line(result, kLongestResult);
  }
  for (const auto& [prefix, ours] : {std::pair(kPassedPrefix, passed), std::pair(kFailedPrefix, failed)}) {
    std::vector<std::string> others;
    for (const auto& [key, value] : annotations.items())
      if (key.starts_with(prefix) && key != ours) others.push_back(key);
    // The node's own go first: the cluster lets no node remove results of others as long as it has its own.
    std::ranges::stable_partition(others, [&](const std::string& key) {
      const std::string by = text_at(annotations, key.c_str());
      return by == node || by.starts_with(node + ":");
    });
    for (std::size_t i = 0; others.size() - i >= kMostResults; ++i) changes[others[i]] = nullptr;
  }
  return {{"metadata", {{"annotations", std::move(changes)}}}};
}

namespace {

using std::chrono::seconds;

// Other nodes see a renewal later than this node sends it, so a lease is renewed well within kLeaseLife.
constexpr seconds kRenewEvery = kLeaseLife / 3;
// All nodes see a free lease at once. Each waits for a random part of this time (milliseconds), so that most
// see the first write before they try.
constexpr kube::Backoff::Pause kRush{2'000};

}  // namespace

RolloutLeases::RolloutLeases(kube::ApiTransport& transport, kube::ApiClient& client, kube::Timers& timers,
                             kube::Random random, WallClock wall_clock, const AgentSettings& settings,
                             std::function<void()> changed)
    : transport_(transport),
      client_(client),
      timers_(timers),
      random_(std::move(random)),
      wall_clock_(std::move(wall_clock)),
      settings_(settings),
      changed_(std::move(changed)),
      timer_(timers) {}

RolloutLeases::~RolloutLeases() {
  if (writing_) client_.cancel(*writing_);
}

void RolloutLeases::open() {
  if (watch_) return;
  kube::ObjectWatch::Listener listener;
  listener.changed = [this] {
    watch_trouble_.clear();
    forget_older();
    changed_();
  };
  listener.trouble = [this](const Error& error) {
    spdlog::warn("{}", error.message);
    observed_.clear();  // holders may have renewed unseen
    if (kube::may_mend(error)) return;
    watch_trouble_ = error.message;
    changed_();
  };
  listener.well = [this] {
    observed_.clear();
    watch_trouble_.clear();
    changed_();
  };
  watch_ = std::make_unique<kube::ObjectWatch>(transport_, timers_, random_,
                                               rollout_lease_objects(settings_.space), std::move(listener));
  if (auto begun = watch_->begin(); !begun) watch_trouble_ = begun.error().message;
}

void RolloutLeases::forget_older() {
  std::erase_if(ours_, [this](const auto& ours) {
    const auto known = watch_->objects().find(ours.first);
    return known != watch_->objects().end() &&
           !kube::is_later(kube::version_of(ours.second), kube::version_of(known->second));
  });
}

void RolloutLeases::close() {
  watch_.reset();
  ours_.clear();
  observed_.clear();
  renewed_.reset();
  not_before_.reset();
  watch_trouble_.clear();
  write_trouble_.clear();
}

std::map<std::string, json> RolloutLeases::leases() const {
  if (!watch_) return {};
  auto out = watch_->objects();
  for (const auto& [name, object] : ours_) out[name] = object;
  return out;
}

json RolloutLeases::lease(std::size_t index) const {
  const auto all = leases();
  const auto found = all.find(settings_.space + "/" + rollout_lease_ref(settings_.space, index).name);
  return found == all.end() ? json() : found->second;
}

bool RolloutLeases::is_ours(const json& lease) const {
  const auto now = rollout_lease_of(lease);
  return now && now->holder == settings_.node;
}

bool RolloutLeases::may_have_one() const {
  return is_writing() ||
         std::ranges::any_of(leases(), [this](const auto& lease) { return is_ours(lease.second); });
}

Rollout RolloutLeases::rollout() {
  Rollout out;
  out.most = settings_.most_changing;
  out.space = settings_.space;
  out.known = watch_ && watch_->listed() && watch_trouble_.empty();
  out.searched = searched_ = searched_ || out.known;
  out.trouble = watch_trouble_.empty() ? write_trouble_ : watch_trouble_;
  for (const auto& [name, object] : leases()) {
    auto rollout_lease = rollout_lease_of(object);
    if (!rollout_lease) continue;
    read_canary_results(object, out.results);
    const bool ours = rollout_lease->holder == settings_.node;
    if (ours || rollout_lease->holder.empty()) {
      observed_.erase(rollout_lease->index);
    } else {
      Observed& observed = observed_[rollout_lease->index];
      if (std::string sign = sign_of_life(object); observed.sign != sign)
        observed = {.sign = std::move(sign), .since = timers_.now()};
      rollout_lease->silent = timers_.now() - observed.since >= kLeaseLife;
    }
    if (ours && renewed_ == rollout_lease->index) out.renewed = timers_.now() - renewed_at_ < kLeaseLife;
    out.leases.push_back(std::move(*rollout_lease));
  }
  std::ranges::sort(out.leases, {}, &RolloutLease::index);
  return out;
}

void RolloutLeases::act(const RolloutStep& step, const std::string& policy) {
  if (step.watches_leases) open();
  if (!step.watches_leases && !writing_) return close();
  if (writing_) return;
  const Moment now = timers_.now();
  const bool due = renewed_ && is_ours(lease(*renewed_)) && now - renewed_at_ >= kRenewEvery;
  RolloutStep to_do = step;
  if (step.kind == RolloutStep::Kind::nothing && due) to_do.kind = RolloutStep::Kind::take;
  if (to_do.kind == RolloutStep::Kind::take && !is_ours(lease(step.index)) && !std::exchange(drawn_, true))
    not_before_ = std::max(not_before_.value_or(now), now + kube::part_of(kRush, random_));
  if (to_do.kind == RolloutStep::Kind::nothing) {
    drawn_ = false;
    return wait_for(step);
  }
  if (not_before_ && *not_before_ > now) return timer_.set(*not_before_, changed_);
  not_before_.reset();
  drawn_ = false;
  write(to_do, policy);
}

void RolloutLeases::write(const RolloutStep& step, const std::string& policy) {
  const std::size_t index = step.kind == RolloutStep::Kind::report ? 0 : step.index;
  // A lease that is being given back permits no new change.
  if (step.kind == RolloutStep::Kind::give_back) renewed_.reset();
  const json known = lease(index);
  const std::string sign = sign_of_life(known);
  const auto patch = [this, step, policy, sign](const json& now) -> Result<json> {
    if (step.kind != RolloutStep::Kind::report && sign_of_life(now) != sign && !is_ours(now))
      return fail({.code = make_error_code(kube::ApiErrc::conflict),
                   .message = fmt::format("Lease {}{}: another was first", kRolloutLeasePrefix, step.index)});
    json out = json::object();
    if (step.kind == RolloutStep::Kind::take) {
      out = patch_to_take(now, settings_.node, step.configuration, policy, wall_clock_());
    } else if (step.kind != RolloutStep::Kind::report) {
      out = {{"spec", {{"holderIdentity", nullptr}, {"acquireTime", nullptr}, {"renewTime", nullptr}}},
             {"metadata",
              {{"annotations", {{api::kLeaseConfiguration, nullptr}, {api::kLeasePolicy, nullptr}}}}}};
    }
    if (step.result) out.update(patch_to_report(now, settings_.node, step.configuration, *step.result), true);
    return out;
  };
  const Moment sent = timers_.now();
  auto done = [this, index, sent](Result<json> result) { written(index, sent, std::move(result)); };
  if (!known.is_null()) {
    writing_ = client_.change(rollout_lease_ref(settings_.space, index), patch, std::move(done), &known);
    return;
  }
  const auto content = patch(json());
  if (!content) return;  // never: without a Lease there is no conflict
  json object = {
      {"apiVersion", kube::kLeases.api_version},
      {"kind", kube::kLeases.kind},
      {"metadata",
       {{"name", rollout_lease_ref(settings_.space, index).name},
        {"namespace", settings_.space},
        {"labels",
         {{api::kRolloutLeaseLabel, std::to_string(index)}, {"app.kubernetes.io/part-of", "ferry"}}}}}};
  object.merge_patch(*content);
  writing_ = client_.create(kube::kLeases, settings_.space, std::move(object), std::move(done));
}

void RolloutLeases::written(std::size_t index, Moment sent, Result<json> result) {
  writing_.reset();
  const std::string name = settings_.space + "/" + rollout_lease_ref(settings_.space, index).name;
  if (result) {
    backoff_.reset();
    write_trouble_.clear();
    if (is_ours(*result)) {
      renewed_ = index;
      renewed_at_ = sent;
    }
    ours_[name] = std::move(*result);
    if (watch_) forget_older();
  } else {
    const Error& error = result.error();
    spdlog::warn("{}", error.message);
    ours_.erase(name);
    // A refusal of a Lease does not end by itself.
    write_trouble_ = is_refusal(error) ? error.message : std::string();
    not_before_ = timers_.now() + backoff_.next(random_);
  }
  changed_();
}

/// Sets the timer for events that no watch reports: the own renewal is due, or another holder turns silent.
void RolloutLeases::wait_for(const RolloutStep& step) {
  std::optional<Moment> next;
  if (renewed_ && is_ours(lease(*renewed_))) next = renewed_at_ + kRenewEvery;
  if (!step.may_begin) {
    for (const auto& [index, observed] : observed_) {
      const Moment end = observed.since + kLeaseLife;
      if (end > timers_.now()) next = next ? std::min(*next, end) : end;
    }
  }
  timer_.cancel();
  if (next) timer_.set(*next, changed_);
}

}  // namespace ferry::agent
