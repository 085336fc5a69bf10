// SPDX-License-Identifier: Apache-2.0
#include "vfio/letting_go.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ferry {

void LettingGo::let_go(const Inventory& inventory) {
  const auto planned = users_of_modules();
  stop_all(Releasable::Kind::persistence);
  stop_what_holds_on(inventory);
  stop_all(Releasable::Kind::service);
  keep_modules_that_are_needed(planned);
  stop_all(Releasable::Kind::module);
}

void LettingGo::stop_all(Releasable::Kind kind) {
  units_.each([&](Move& move) -> std::optional<MoveResult> {
    for (const Step& step : move.steps) {
      if (step.kind != Step::Kind::let_go) break;
      if (step.holder.kind != kind) continue;
      auto stopped = services_.stop(step.holder);
      // A GPU that the daemon cannot be asked for is seen to hold on: its whole service stops then.
      const bool other_way =
          kind == Releasable::Kind::persistence && !stopped && stopped.error().code != Errc::stuck;
      if (!stopped && !other_way) {
        return failed(std::move(move), std::move(stopped).error().during(step.text()));
      }
      if (stopped) note_released(move, step.holder);
    }
    return std::nullopt;
  });
}

LettingGo::UsersOfModules LettingGo::users_of_modules() const {
  UsersOfModules users;
  for (const Move& move : units_.moves) {
    for (const Step& step : move.steps) {
      if (step.kind == Step::Kind::let_go && step.holder.kind == Releasable::Kind::module)
        ++users[step.holder.name];
    }
  }
  return users;
}

// A module lets go of all its devices at once, and the plan has it that all of them move: of none, then,
// when a unit has dropped out since.
void LettingGo::keep_modules_that_are_needed(const UsersOfModules& planned) {
  for (auto now = users_of_modules(), before = UsersOfModules(); now != before;
       before = std::exchange(now, users_of_modules())) {
    units_.each([&](Move& move) -> std::optional<MoveResult> {
      for (const Step& step : move.steps) {
        if (step.kind != Step::Kind::let_go || step.holder.kind != Releasable::Kind::module ||
            now[step.holder.name] == planned.at(step.holder.name))
          continue;
        return refused({.devices = move.devices,
                        .groups = move.groups,
                        .reasons = {step.holder.name + " is not unloaded: another GPU that it serves stays"},
                        .hint = "see what keeps that one"});
      }
      return std::nullopt;
    });
  }
}

// That the tool of a driver succeeded proves nothing.
void LettingGo::stop_what_holds_on(const Inventory& inventory) {
  std::vector<PciAddress> asked;
  for (const Move& move : units_.moves) {
    for (const Step& step : move.steps) {
      if (step.kind == Step::Kind::let_go && step.holder.kind == Releasable::Kind::persistence)
        asked.push_back(PciAddress::parse(step.holder.name).value());
    }
  }
  if (asked.empty()) return;
  const auto use = context_.probe->look(use_questions(*context_.host, inventory, asked));
  const auto holds_on = [&](const PciAddress& gpu) {
    return !use || std::ranges::any_of(use->of(gpu.text()),
                                       [](const Holder& holder) { return holder.service == kPersistenced; });
  };
  if (std::ranges::none_of(asked, holds_on)) return;
  const Releasable service{.kind = Releasable::Kind::service, .name = kPersistenced};
  units_.each([&](Move& move) -> std::optional<MoveResult> {
    const auto moving = move.moving();
    if (std::ranges::none_of(moving, [&](const PciAddress& address) {
          return std::ranges::find(asked, address) != asked.end() && holds_on(address);
        }))
      return std::nullopt;
    if (auto stopped = services_.stop(service); !stopped)
      return failed(std::move(move), std::move(stopped).error().during(service.letting_go()));
    note_released(move, service);
    return std::nullopt;
  });
}

void LettingGo::note_released(const Move& move, const Releasable& holder) {
  for (const PciAddress& device : move.devices) released_[device].insert(holder);
}

void LettingGo::tell_released(Move& move) const {
  std::set<Releasable> holders;
  for (const PciAddress& device : move.devices) {
    if (const auto found = released_.find(device); found != released_.end())
      holders.insert(found->second.begin(), found->second.end());
  }
  release_around(move, holders);
}

}  // namespace ferry
