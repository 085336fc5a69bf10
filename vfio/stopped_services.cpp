// SPDX-License-Identifier: Apache-2.0
#include "vfio/stopped_services.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "common/stuck_writes.h"
#include "vfio/inventory.h"
#include "vfio/release.h"

namespace ferry {
namespace {

constexpr const char* kNvidia = "nvidia";

// True if a device is left that `holder` would use.
bool device_left(const ReleaseContext& context, const Inventory& inventory, const Releasable& holder) {
  return std::ranges::any_of(inventory.functions, [&](const auto& entry) {
    const auto& [address, function] = entry;
    if (!function.driver || on_vfio_driver(function)) return false;
    switch (holder.kind) {
      case Releasable::Kind::service:
        return context.rules.match(function);
      case Releasable::Kind::module:
        return function.driver == kNvidia;
      case Releasable::Kind::persistence:
        return address.text() == holder.name;
    }
    return true;
  });
}

std::string again(const Releasable& holder, bool by_us) {
  const std::string_view when = by_us ? "" : " by an earlier run";
  switch (holder.kind) {
    case Releasable::Kind::persistence:
      return fmt::format("persistence of {} was switched off{} and is left to nvidia-persistenced again",
                         holder.name, when);
    case Releasable::Kind::service:
      return fmt::format("{} was stopped{} and is started again", holder.name, when);
    case Releasable::Kind::module:
      return fmt::format("module {} was unloaded{} and is loaded again", holder.name, when);
  }
  return {};
}

}  // namespace

Result<> StoppedServices::take_over() {
  auto record = read_service_record(*context_.host);
  if (!record) return fail(std::move(record).error());
  stopped_ = std::move(record->services);
  notes_ = std::move(record->notes);
  return {};
}

void StoppedServices::tell(Step::Kind kind, const Releasable& holder) const {
  if (context_.on_step)
    context_.on_step({.kind = kind, .address = {}, .value = {}, .why = {}, .holder = holder});
}

Result<> StoppedServices::let_go(const Releasable& holder) const {
  switch (holder.kind) {
    case Releasable::Kind::persistence:
      return context_.persistence->set(PciAddress::parse(holder.name).value(), false);
    case Releasable::Kind::service:
      return context_.releaser->stop(holder.name);
    case Releasable::Kind::module:
      return context_.writer->unload_module(holder.name);
  }
  return {};
}

Result<> StoppedServices::take_hold(const Releasable& holder) const {
  switch (holder.kind) {
    case Releasable::Kind::persistence:
      return context_.persistence->set(PciAddress::parse(holder.name).value(), true);
    case Releasable::Kind::service:
      return context_.releaser->start(holder.name);
    case Releasable::Kind::module:
      return context_.writer->load_module(holder.name);
  }
  return {};
}

Result<> StoppedServices::record(std::map<Releasable, StoppedService> after) {
  if (after == stopped_) return {};
  if (auto written = write_service_record(*context_.host, after); !written) return written;
  stopped_ = std::move(after);
  return {};
}

bool StoppedServices::is_stuck(const Releasable& holder) const {
  const auto stuck = stuck_writes(*context_.host);
  return stuck &&
         std::ranges::any_of(*stuck, [&](const StuckWrite& write) { return concerns(write, holder.name); });
}

Result<> StoppedServices::stop(const Releasable& holder) {
  if (const auto known = tried_.find(holder); known != tried_.end()) {
    return known->second;
  }
  if (is_stuck(holder)) {
    return fail(Errc::stuck, "an earlier order about it has not returned from the kernel",
                "see /run/ferry/hostd/stuck; if it never returns, only a reboot helps");
  }
  auto after = stopped_;
  after[holder] = StoppedService::to_start;
  Result<> done = record(std::move(after));
  if (done) {
    tell(Step::Kind::let_go, holder);
    done = let_go(holder);
    // A tool that could not be run at all cannot switch persistence on either; the service that is stopped
    // instead does so at its start. A tool that ran and failed may still have switched it off.
    const bool asked = done || done.error().code == Errc::stuck || done.error().code == Errc::failed;
    if (!asked && holder.kind == Releasable::Kind::persistence) {
      after = stopped_;
      after.erase(holder);
      if (auto written = record(std::move(after)); !written) done = written;
    }
  }
  tried_[holder] = done;
  return done;
}

StoppedServices::Restart StoppedServices::start_all() {
  Restart out{.notes = std::exchange(notes_, {}), .errors = {}};
  if (stopped_.empty()) return out;
  // If the scan fails, devices count as present, so that a failed start is reported.
  const auto inventory = scan(*context_.host);
  std::map<Releasable, StoppedService> after;
  // The reverse of the order in which they were quiesced.
  for (const auto& [holder, state] : stopped_ | std::views::reverse) {
    const bool service = holder.kind == Releasable::Kind::service;
    const bool left = !inventory || device_left(context_, *inventory, holder);
    // A service may run without a device; a module or a GPU's persistence has no purpose then.
    if (!left && (!service || state == StoppedService::waits_for_a_device)) {
      after[holder] = StoppedService::waits_for_a_device;
      continue;
    }
    const bool nobody = (service && context_.releaser == nullptr) ||
                        (holder.kind == Releasable::Kind::persistence && context_.persistence == nullptr);
    if (nobody) {
      after[holder] = state;
      out.notes.push_back(
          service ? fmt::format("{} is stopped and no service manager is there to start it", holder.name)
                  : fmt::format("persistence of {} is off and no nvidia-smi is there to "
                                "switch it on",
                                holder.name));
      continue;
    }
    if (is_stuck(holder)) {
      after[holder] = state;
      out.notes.push_back(
          fmt::format("{}: waits, since an earlier order about it has not returned "
                      "(/run/ferry/hostd/stuck)",
                      holder.taking_hold()));
      continue;
    }
    tell(Step::Kind::take_hold, holder);
    auto started = take_hold(holder);
    if (started) {
      out.notes.push_back(again(holder, tried_.contains(holder)));
      continue;
    }
    Error error = std::move(started).error().during(holder.taking_hold());
    // nvidia-smi fails for other reasons too, and a second try would fail again.
    if (holder.kind == Releasable::Kind::persistence && error.code == Errc::failed) {
      out.notes.push_back(error.message + "; see whether it is on: nvidia-smi -q -i " + holder.name);
      continue;
    }
    after[holder] = left ? StoppedService::to_start : StoppedService::waits_for_a_device;
    if (left) {
      error.hint = "the next run that moves or divides GPUs tries again";
      out.errors.push_back(std::move(error));
    } else {
      out.notes.push_back(error.message + "; no accelerator is left to it, it is started with the next one");
    }
  }
  if (auto written = record(std::move(after)); !written) out.errors.push_back(std::move(written).error());
  return out;
}

Result<std::vector<std::string>> notes_on_stopped_services(const HostFs& host) {
  auto record = read_service_record(host);
  if (!record) return fail(std::move(record).error());
  std::vector<std::string> notes = std::move(record->notes);
  for (const auto& [holder, state] : record->services) {
    if (state == StoppedService::to_start) {
      notes.push_back(
          holder.kind == Releasable::Kind::service
              ? fmt::format("{} was stopped by an earlier run: the next one starts it", holder.name)
              : fmt::format("left by an earlier run to the next: {}", holder.taking_hold()));
    } else {
      notes.push_back(holder.kind == Releasable::Kind::service
                          ? fmt::format("{} is started again with the next accelerator", holder.name)
                          : fmt::format("once a GPU is back on its driver: {}", holder.taking_hold()));
    }
  }
  return notes;
}

}  // namespace ferry
