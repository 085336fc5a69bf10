// SPDX-License-Identifier: Apache-2.0
#include "vfio/stopped_services.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "vfio/inventory.h"
#include "vfio/release.h"

namespace ferry {
namespace {

// A host that cannot be looked at counts as one with devices: a service that does not start is then told.
bool devices_left(const MoveContext& context) {
  const auto inventory = scan(*context.host);
  if (!inventory) return true;
  return std::ranges::any_of(inventory->functions, [&](const auto& entry) {
    const PciFunction& function = entry.second;
    return context.rules.match(function) && function.driver && !on_vfio_driver(function);
  });
}

}  // namespace

Result<> StoppedServices::take_over() {
  auto record = read_service_record(*context_.host);
  if (!record) return fail(std::move(record).error());
  stopped_ = std::move(record->services);
  notes_ = std::move(record->notes);
  return {};
}

void StoppedServices::tell(Step::Kind kind, const std::string& unit) const {
  if (context_.on_step) context_.on_step({.kind = kind, .address = {}, .value = unit, .why = {}});
}

Result<> StoppedServices::stop(const std::string& unit) {
  if (const auto known = tried_.find(unit); known != tried_.end()) {
    return known->second;
  }
  auto after = stopped_;
  after[unit] = StoppedService::to_start;
  Result<> done;
  if (after != stopped_) done = write_service_record(*context_.host, after);
  if (done) {
    stopped_ = std::move(after);
    tell(Step::Kind::stop_service, unit);
    done = context_.releaser->stop(unit);
  }
  tried_[unit] = done;
  return done;
}

StoppedServices::Restart StoppedServices::start_all() {
  Restart out{.notes = std::exchange(notes_, {}), .errors = {}};
  if (stopped_.empty()) return out;
  if (context_.releaser == nullptr) {
    for (const auto& [unit, state] : stopped_)
      out.notes.push_back(fmt::format("{} is stopped and no service manager is there to start it", unit));
    return out;
  }
  const bool left = devices_left(context_);
  std::map<std::string, StoppedService> after;
  for (const auto& [unit, state] : stopped_) {
    if (state == StoppedService::waits_for_a_device && !left) {
      after[unit] = state;
      continue;
    }
    tell(Step::Kind::start_service, unit);
    auto started = context_.releaser->start(unit);
    if (started) {
      out.notes.push_back(fmt::format("{} was stopped{} and is started again", unit,
                                      tried_.contains(unit) ? "" : " by an earlier run"));
      continue;
    }
    after[unit] = left ? StoppedService::to_start : StoppedService::waits_for_a_device;
    Error error = std::move(started).error().during("start " + unit);
    if (left) {
      error.hint = "the next `ferry vfio bind` or `restore` tries again";
      out.errors.push_back(std::move(error));
    } else {
      out.notes.push_back(error.message + "; no accelerator is left to it, it is started with the next one");
    }
  }
  if (after != stopped_) {
    if (auto written = write_service_record(*context_.host, after); !written)
      out.errors.push_back(std::move(written).error());
  }
  stopped_ = std::move(after);
  return out;
}

Result<std::vector<std::string>> notes_on_stopped_services(const HostFs& host) {
  auto record = read_service_record(host);
  if (!record) return fail(std::move(record).error());
  std::vector<std::string> notes = std::move(record->notes);
  for (const auto& [unit, state] : record->services) {
    notes.push_back(state == StoppedService::to_start
                        ? fmt::format("{} was stopped by an earlier run: the next one starts it", unit)
                        : fmt::format("{} is started again with the next accelerator", unit));
  }
  return notes;
}

}  // namespace ferry
