// SPDX-License-Identifier: Apache-2.0
#include "agent/change_slots.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "agent/change_leases.h"
#include "kube/api_error.h"
#include "kube/watch_event.h"

namespace ferry {
namespace {

using nlohmann::json;
using std::chrono::seconds;

// Other nodes see a renewal later than this node sends it, so a slot is renewed well within kSlotLife.
constexpr seconds kRenewEvery = kSlotLife / 3;
// All nodes see a free slot at once. Each waits for a random part of this time (milliseconds), so that most
// see the first write before they try.
constexpr Backoff::Pause kRush{2'000};

}  // namespace

ChangeSlots::ChangeSlots(ApiTransport& transport, ApiClient& client, Timers& timers, Random random,
                         WallClock wall_clock, Settings settings, std::function<void()> changed)
    : transport_(transport),
      client_(client),
      timers_(timers),
      random_(std::move(random)),
      wall_clock_(std::move(wall_clock)),
      settings_(std::move(settings)),
      changed_(std::move(changed)) {}

ChangeSlots::~ChangeSlots() {
  if (writing_) client_.cancel(*writing_);
  timers_.cancel(timer_);
}

void ChangeSlots::open() {
  if (watch_) return;
  watch_ = std::make_unique<ObjectWatch>(transport_, timers_, random_, change_leases(settings_.space),
                                         ObjectWatch::Listener{.changed =
                                                                   [this] {
                                                                     watch_trouble_.clear();
                                                                     forget_older();
                                                                     changed_();
                                                                   },
                                                               .trouble =
                                                                   [this](const Error& error) {
                                                                     spdlog::warn("{}", error.message);
                                                                     // Holders may have renewed unseen.
                                                                     seen_.clear();
                                                                     if (may_mend(error)) return;
                                                                     watch_trouble_ = error.message;
                                                                     changed_();
                                                                   },
                                                               .well =
                                                                   [this] {
                                                                     seen_.clear();
                                                                     watch_trouble_.clear();
                                                                     changed_();
                                                                   }});
  if (auto begun = watch_->begin(); !begun) watch_trouble_ = begun.error().message;
}

void ChangeSlots::forget_older() {
  std::erase_if(ours_, [this](const auto& ours) {
    const auto known = watch_->objects().find(ours.first);
    return known != watch_->objects().end() && !is_later(version_of(ours.second), version_of(known->second));
  });
}

void ChangeSlots::close() {
  watch_.reset();
  ours_.clear();
  seen_.clear();
  renewed_.reset();
  not_before_.reset();
  watch_trouble_.clear();
  write_trouble_.clear();
}

std::map<std::string, json> ChangeSlots::leases() const {
  if (!watch_) return {};
  auto out = watch_->objects();
  for (const auto& [name, object] : ours_) out[name] = object;
  return out;
}

json ChangeSlots::lease(std::size_t slot) const {
  const auto all = leases();
  const auto found = all.find(settings_.space + "/" + change_lease(settings_.space, slot).name);
  return found == all.end() ? json() : found->second;
}

bool ChangeSlots::is_ours(std::size_t slot) const {
  const auto now = change_slot_of(lease(slot));
  return now && now->holder == settings_.node;
}

bool ChangeSlots::may_have_one() const {
  return is_writing() || std::ranges::any_of(leases(), [this](const auto& lease) {
           const auto slot = change_slot_of(lease.second);
           return slot && slot->holder == settings_.node;
         });
}

void ChangeSlots::observe(ChangeSlot& slot, const json& lease) {
  if (slot.holder.empty() || slot.holder == settings_.node) {
    seen_.erase(slot.index);
    return;
  }
  Seen& seen = seen_[slot.index];
  if (std::string sign = sign_of_life(lease); seen.sign != sign)
    seen = {.sign = sign, .since = timers_.now()};
  slot.silent = timers_.now() - seen.since >= kSlotLife;
}

ChangeBudget ChangeSlots::budget() {
  ChangeBudget out;
  out.most = settings_.most;
  out.space = settings_.space;
  out.known = watch_ && watch_->listed() && watch_trouble_.empty();
  out.searched = searched_ = searched_ || out.known;
  out.trouble = watch_trouble_.empty() ? write_trouble_ : watch_trouble_;
  for (const auto& [name, object] : leases()) {
    auto slot = change_slot_of(object);
    if (!slot) continue;
    observe(*slot, object);
    read_verdicts(object, out.verdicts);
    const bool ours = slot->holder == settings_.node && renewed_ == slot->index;
    if (ours) out.renewed = timers_.now() - renewed_at_ < kSlotLife;
    out.slots.push_back(std::move(*slot));
  }
  std::ranges::sort(out.slots, {}, &ChangeSlot::index);
  return out;
}

void ChangeSlots::act(const BudgetStep& step, const std::string& policy) {
  if (step.looks) open();
  if (!step.looks && !writing_) return close();
  if (writing_) return;
  const Moment now = timers_.now();
  const bool due = renewed_ && is_ours(*renewed_) && now - renewed_at_ >= kRenewEvery;
  BudgetStep to_do = step;
  if (step.kind == BudgetStep::Kind::nothing && due) to_do.kind = BudgetStep::Kind::take;
  if (to_do.kind == BudgetStep::Kind::take && !is_ours(step.slot) && !std::exchange(drawn_, true))
    not_before_ = std::max(not_before_.value_or(now), now + part_of(kRush, random_));
  if (to_do.kind == BudgetStep::Kind::nothing) {
    drawn_ = false;
    return wait_for(step);
  }
  if (not_before_ && *not_before_ > now) return call_at(*not_before_);
  not_before_.reset();
  drawn_ = false;
  write(to_do, policy);
}

void ChangeSlots::write(const BudgetStep& step, const std::string& policy) {
  const std::size_t slot = step.kind == BudgetStep::Kind::judge ? 0 : step.slot;
  // A slot that is being given back permits no new change.
  if (step.kind == BudgetStep::Kind::give_back) renewed_.reset();
  const json known = lease(slot);
  const std::string sign = sign_of_life(known);
  const auto patch = [this, step, policy, sign](const json& now) -> Result<json> {
    const auto at = change_slot_of(now);
    const bool same = sign_of_life(now) == sign;
    if (step.kind != BudgetStep::Kind::judge && !same && (!at || at->holder != settings_.node))
      return fail({.code = make_error_code(ApiErrc::conflict),
                   .message = fmt::format("Lease {}{}: another was first", kChangeLease, step.slot),
                   .hint = {}});
    json out = json::object();
    if (step.kind == BudgetStep::Kind::take) {
      out = patch_to_take(now, {.node = settings_.node,
                                .configuration = step.configuration,
                                .policy = policy,
                                .now = wall_clock_()});
    } else if (step.kind != BudgetStep::Kind::judge) {
      out = patch_to_give_back();
    }
    if (step.verdict)
      out = both(std::move(out), patch_to_judge(now, settings_.node, step.configuration, *step.verdict));
    return out;
  };
  const Moment sent = timers_.now();
  auto done = [this, slot, sent](Result<json> result) { written(slot, sent, std::move(result)); };
  if (!known.is_null()) {
    writing_ = client_.change(change_lease(settings_.space, slot), patch, std::move(done), &known);
    return;
  }
  const auto content = patch(json());
  if (!content) return;  // never: without a Lease there is no conflict
  writing_ = client_.create(kLeases, settings_.space, new_change_lease(settings_.space, slot, *content),
                            std::move(done));
}

void ChangeSlots::written(std::size_t slot, Moment sent, Result<json> result) {
  writing_.reset();
  const std::string name = settings_.space + "/" + change_lease(settings_.space, slot).name;
  if (result) {
    backoff_.reset();
    write_trouble_.clear();
    const auto now = change_slot_of(*result);
    if (now && now->holder == settings_.node) {
      renewed_ = slot;
      renewed_at_ = sent;
    }
    ours_[name] = std::move(*result);
    if (watch_) forget_older();
  } else {
    const Error& error = result.error();
    spdlog::warn("{}", error.message);
    ours_.erase(name);
    // Neither error ends by itself.
    const bool refused = error.code == ApiErrc::forbidden || error.code == ApiErrc::invalid;
    write_trouble_ = refused ? error.message : std::string();
    not_before_ = timers_.now() + backoff_.next(random_);
  }
  changed_();
}

void ChangeSlots::call_at(Moment when) {
  timers_.cancel(timer_);
  timer_ = timers_.at(when, changed_);
}

/// Sets the timer for events that no watch reports: the own renewal is due, or another holder turns silent.
void ChangeSlots::wait_for(const BudgetStep& step) {
  std::optional<Moment> next;
  if (renewed_ && is_ours(*renewed_)) next = renewed_at_ + kRenewEvery;
  if (!step.may_begin) {
    for (const auto& [slot, seen] : seen_) {
      const Moment end = seen.since + kSlotLife;
      if (end > timers_.now()) next = next ? std::min(*next, end) : end;
    }
  }
  timers_.cancel(timer_);
  if (next) call_at(*next);
}

}  // namespace ferry
