// SPDX-License-Identifier: Apache-2.0
#include "agent/drain/evictions.h"

#include <algorithm>
#include <set>
#include <utility>

#include <spdlog/spdlog.h>

#include "agent/node_refusals.h"
#include "kube/api_path.h"

namespace ferry::agent {
namespace {

// Some refusals end by themselves: a new API server forbids all requests, a terminating namespace forbids for
// a while, and an admission policy answers 422 until its conditions hold.
constexpr std::chrono::seconds kRefusalPatience{60};

}  // namespace

Evictions::Evictions(kube::ApiClient& client, kube::Timers& timers, kube::Random random,
                     std::function<void()> changed)
    : client_(client),
      timers_(timers),
      random_(std::move(random)),
      changed_(std::move(changed)),
      timer_(timers) {}

Evictions::~Evictions() {
  leave_out_others({});
}

void Evictions::leave_out_others(const std::vector<PodOnNode>& pods) {
  std::set<std::string> named;
  for (const PodOnNode& pod : pods) named.insert(pod.uid);
  for (const auto& [uid, asked] : asked_)
    if (!named.contains(uid) && asked.call) client_.cancel(*asked.call);
  std::erase_if(asked_, [&](const auto& one) { return !named.contains(one.first); });
}

void Evictions::act(const std::vector<PodOnNode>& pods) {
  if (pods.empty()) {
    refused_.clear();
    refused_since_.reset();
  }
  leave_out_others(pods);
  std::erase_if(delays_, [this](const auto& one) { return !asked_.contains(one.first); });
  for (const PodOnNode& pod : pods) {
    // Without a UID the eviction could hit another pod of the same name.
    if (pod.uid.empty()) continue;
    Asked& asked = asked_[pod.uid];
    if (!asked.call && timers_.now() >= asked.again) ask(pod, asked);
  }

  timer_.cancel();
  std::optional<Moment> first;
  for (const auto& [uid, asked] : asked_)
    if (!asked.call) first = std::min(first.value_or(asked.again), asked.again);
  if (first) timer_.set(*first, changed_);
}

void Evictions::ask(const PodOnNode& pod, Asked& asked) {
  asked.call = client_.evict(kube::pod_ref(pod.space, pod.name), pod.uid,
                             [this, pod](Result<kube::Eviction> eviction) {
                               const auto found = asked_.find(pod.uid);
                               if (found == asked_.end()) return;
                               answered(pod, found->second, std::move(eviction));
                               changed_();
                             });
}

void Evictions::answered(const PodOnNode& pod, Asked& asked, Result<kube::Eviction> eviction) {
  asked.call.reset();
  std::string why;
  std::optional<std::chrono::seconds> retry_after;
  if (!eviction) {
    const Error& error = eviction.error();
    why = error.text();
    if (is_refusal(error)) {
      if (!refused_since_) refused_since_ = timers_.now();
      if (timers_.now() - *refused_since_ >= kRefusalPatience) refused_ = why;
    }
  } else {
    refused_since_.reset();
    why = eviction->why;
    retry_after = eviction->retry_after;
    if (why.empty() && !eviction->gone) spdlog::info("pod {} is evicted", pod.text());
  }
  // The watch reports the pod's end. A pod that does not end is evicted again.
  asked.again = timers_.now() + asked.backoff.next(random_, retry_after);
  if (!why.empty() && why != asked.why) spdlog::warn("{}", why);
  if (why.empty())
    delays_.erase(pod.uid);
  else
    delays_[pod.uid] = why;
  asked.why = std::move(why);
}

std::vector<std::string> Evictions::delayed() const {
  std::vector<std::string> out;
  out.reserve(delays_.size());
  for (const auto& [uid, why] : delays_) out.push_back(why);
  return out;
}

}  // namespace ferry::agent
