// SPDX-License-Identifier: Apache-2.0
#include "agent/named_daemon_sets.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "agent/cluster_objects.h"
#include "kube/api_error.h"
#include "kube/api_path.h"

namespace ferry {
namespace {

// A deleted DaemonSet ends its pods, which the watch reports; so a rare repetition is enough.
constexpr std::chrono::seconds kAskAgain{60};

}  // namespace

NamedDaemonSets::NamedDaemonSets(ApiClient& client, Timers& timers, std::function<void()> changed)
    : client_(client), timers_(timers), changed_(std::move(changed)) {}

NamedDaemonSets::~NamedDaemonSets() {
  ask({});
}

void NamedDaemonSets::ask(const std::set<NamedOwner>& owners) {
  for (auto& [owner, asked] : asked_)
    if (!owners.contains(owner) && asked.call) client_.cancel(*asked.call);
  std::erase_if(asked_, [&](const auto& one) { return !owners.contains(one.first); });
  for (const NamedOwner& owner : owners) {
    Asked& asked = asked_[owner];
    if (!asked.call && timers_.now() >= asked.again) ask_for(owner, asked);
  }
  if (asked_.empty()) timers_.cancel(timer_);
}

void NamedDaemonSets::ask_for(const NamedOwner& owner, Asked& asked) {
  const ObjectRef set{.kind = kDaemonSets, .space = owner.space, .name = owner.name};
  asked.call = client_.get(
      set,
      [this, owner](const Result<nlohmann::json>& object) {
        const auto found = asked_.find(owner);
        if (found == asked_.end()) return;
        answered(owner, found->second, object);
        changed_();
      },
      daemon_set_fields());
}

void NamedDaemonSets::answered(const NamedOwner& owner, Asked& asked, const Result<nlohmann::json>& object) {
  asked.call.reset();
  asked.again = timers_.now() + kAskAgain;
  asked.trouble.clear();
  if (object) {
    asked.exists = uid_of(*object) == owner.uid;
    return;
  }
  const Error& error = object.error();
  // Errc::usage: no object can have this name, so there is no such DaemonSet.
  if (error.code == ApiErrc::not_found || error.code == Errc::usage) {
    asked.exists = false;
    return;
  }
  asked.exists.reset();
  asked.trouble = error.hint.empty() ? error.message : fmt::format("{}; {}", error.message, error.hint);
  spdlog::warn("{}", asked.trouble);
  timers_.cancel(timer_);
  timer_ = timers_.at(asked.again, changed_);
}

std::string NamedDaemonSets::kept_because(const NamedOwner& owner) const {
  const auto found = asked_.find(owner);
  const Asked asked = found == asked_.end() ? Asked() : found->second;
  if (asked.exists) return *asked.exists ? "it is of DaemonSet " + owner.text() : std::string();
  return fmt::format("it is not known whether its DaemonSet {} exists{}{}", owner.text(),
                     asked.trouble.empty() ? "" : ": ", asked.trouble);
}

}  // namespace ferry
