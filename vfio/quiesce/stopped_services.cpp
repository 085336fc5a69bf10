// SPDX-License-Identifier: Apache-2.0
#include "vfio/quiesce/stopped_services.h"

#include <array>
#include <ranges>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"
#include "common/version.h"
#include "hostfs/kernel_facts.h"
#include "hostfs/stuck_writes.h"

namespace ferry::vfio {
namespace {

using nlohmann::json;
constexpr const char* kFile = "run/ferry/hostd/stopped-services.json";
constexpr int kVersionOfFormat = 1;
constexpr const char* kToStart = "to start";
constexpr const char* kWaits = "waits for a device";

tl::unexpected<Error> broken(const std::string& why) {
  return fail(Errc::malformed_host, fmt::format("/{}: {}", kFile, why),
              "the file says which services to start again; mend it, or start them and remove it");
}

/// A map of the file, from name to state.
struct Section {
  const char* key;
  Releasable::Kind kind;
};
constexpr std::array kSections = {Section{.key = "services", .kind = Releasable::Kind::service},
                                  Section{.key = "modules", .kind = Releasable::Kind::module},
                                  Section{.key = "gpus", .kind = Releasable::Kind::persistence}};

// root starts and loads the names in the file, so only names that Ferry could have written are accepted.
bool could_be_ours(const Releasable& user) {
  switch (user.kind) {
    case Releasable::Kind::module:
      return user.name == kConsoleModule;
    case Releasable::Kind::persistence: {
      const auto gpu = PciAddress::parse(user.name);
      return gpu && gpu->text() == user.name;
    }
    case Releasable::Kind::service:
      break;
  }
  const auto named = services_named(user.name);
  return named && named->front() == user.name && user.name != kConsoleModule;
}

}  // namespace

Result<ServiceRecord> read_service_record(const HostFs& host) {
  ServiceRecord out;
  const auto text = host.read_file(kFile);
  if (!text) {
    if (is_gone(text.error())) return out;
    return fail(text.error());
  }
  try {
    const json record = parse_whole_json(*text);
    if (record.at("version").get<int>() != kVersionOfFormat)
      return broken("written by another version of ferry");
    const auto of_boot = record.at("boot_id").get<std::string>();
    const auto boot = boot_id(host);
    if (!boot) return fail(Error(boot.error()).during("find out which services are stopped"));
    if (of_boot != *boot) {
      out.notes.push_back(
          fmt::format("/{} is of an earlier boot and void: systemd has started afresh", kFile));
      return out;
    }
    for (const auto& [key, kind] : kSections) {
      const json section =
          kind == Releasable::Kind::service ? record.at(key) : record.value(key, json::object());
      if (!section.is_object()) return broken(fmt::format("'{}' is no map", key));
      for (const auto& [name, state] : section.items()) {
        const Releasable user{.kind = kind, .name = name};
        if (!could_be_ours(user)) return broken(fmt::format("'{}' is no name for '{}'", name, key));
        if (state != kToStart && state != kWaits)
          return broken(name + " is neither to be started nor waiting");
        out.services[user] = state == kWaits ? StoppedService::waits_for_a_device : StoppedService::to_start;
      }
    }
    return out;
  } catch (const json::exception& error) {
    return broken(error.what());
  }
}

Result<> write_service_record(HostFs& host, const std::map<Releasable, StoppedService>& services) {
  if (services.empty()) return host.remove_file(kFile);
  const auto boot = boot_id(host);
  if (!boot) return fail(Error(boot.error()).during("record which services are stopped"));
  json record = {
      {"version", kVersionOfFormat}, {"ferry", kVersion}, {"boot_id", *boot}, {"services", json::object()}};
  for (const auto& [key, kind] : kSections) {
    for (const auto& [user, state] : services) {
      if (user.kind == kind)
        record[key][user.name] = state == StoppedService::waits_for_a_device ? kWaits : kToStart;
    }
  }
  return host.write_file(kFile, record.dump(2) + "\n");
}

namespace {

constexpr const char* kNvidia = "nvidia";

bool device_left(const RebindContext& context, const Inventory& inventory, const Releasable& user) {
  return std::ranges::any_of(inventory.functions, [&](const auto& entry) {
    const auto& [address, function] = entry;
    if (!function.driver || on_vfio_driver(function)) return false;
    switch (user.kind) {
      case Releasable::Kind::service:
        return context.rules.match(function);
      case Releasable::Kind::module:
        return function.driver == kNvidia;
      case Releasable::Kind::persistence:
        return address.text() == user.name;
    }
    return true;
  });
}

/// True if an earlier order about `user`, from any run, has not returned: a second would queue behind it.
/// True also if that cannot be read.
bool is_stuck(const HostFs& host, const Releasable& user) {
  const auto stuck = stuck_writes(host);
  return !stuck ||
         std::ranges::any_of(*stuck, [&](const StuckWrite& write) { return concerns(write, user.name); });
}

enum class Obstacle { none, no_device, no_tool, stuck };

/// The obstacle that keeps `user` stopped in this run. `left`: device_left().
Obstacle obstacle_to_start(const RebindContext& context, const Releasable& user, StoppedService state,
                           bool left) {
  const bool service = user.kind == Releasable::Kind::service;
  // A service may run without a device; a module or a GPU's persistence has no purpose then.
  if (!left && (!service || state == StoppedService::waits_for_a_device)) return Obstacle::no_device;
  if (service && context.service_manager == nullptr) return Obstacle::no_tool;
  if (user.kind == Releasable::Kind::persistence && context.persistence == nullptr) return Obstacle::no_tool;
  return is_stuck(*context.host, user) ? Obstacle::stuck : Obstacle::none;
}

std::string again(const Releasable& user, bool by_us) {
  const std::string_view when = by_us ? "" : " by an earlier run";
  switch (user.kind) {
    case Releasable::Kind::persistence:
      return fmt::format("persistence of {} was switched off{} and is left to nvidia-persistenced again",
                         user.name, when);
    case Releasable::Kind::service:
      return fmt::format("{} was stopped{} and is started again", user.name, when);
    case Releasable::Kind::module:
      return fmt::format("module {} was unloaded{} and is loaded again", user.name, when);
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

void StoppedServices::report_step(Step::Kind kind, const Releasable& user) const {
  if (context_.on_step) context_.on_step({.kind = kind, .user = user});
}

Result<> StoppedServices::set_running(const Releasable& user, bool run) const {
  switch (user.kind) {
    case Releasable::Kind::persistence:
      return context_.persistence->set(PciAddress::parse(user.name).value(), run);
    case Releasable::Kind::service:
      return run ? context_.service_manager->start(user.name) : context_.service_manager->stop(user.name);
    case Releasable::Kind::module:
      return run ? context_.writer->load_module(user.name) : context_.writer->unload_module(user.name);
  }
  return {};
}

Result<> StoppedServices::record(std::map<Releasable, StoppedService> after) {
  if (after == stopped_) return {};
  if (auto written = write_service_record(*context_.host, after); !written) return written;
  stopped_ = std::move(after);
  return {};
}

Result<> StoppedServices::stop(const Releasable& user) {
  if (const auto known = tried_.find(user); known != tried_.end()) return known->second;
  if (is_stuck(*context_.host, user)) {
    return fail(Errc::stuck, "an earlier order about it has not returned from the kernel",
                "see /run/ferry/stuck-writes; if it never returns, only a reboot helps");
  }
  auto after = stopped_;
  after[user] = StoppedService::to_start;
  Result<> done = record(std::move(after));
  if (done) {
    report_step(Step::Kind::quiesce, user);
    done = set_running(user, false);
    // A daemon that was not asked has the GPU open as before. One that has not answered may have closed it.
    const bool asked = done || done.error().code == Errc::stuck || done.error().code == Errc::failed;
    if (!asked && user.kind == Releasable::Kind::persistence) {
      after = stopped_;
      after.erase(user);
      if (auto written = record(std::move(after)); !written) done = written;
    }
  }
  tried_[user] = done;
  return done;
}

StoppedServices::Restart StoppedServices::start_all() {
  Restart out{.notes = std::exchange(notes_, {}), .errors = {}};
  if (stopped_.empty()) return out;
  // If the scan fails, devices count as present, so that a failed start is reported.
  const auto inventory = scan(*context_.host);
  std::map<Releasable, StoppedService> after;
  // The reverse of the order in which they were quiesced.
  for (const auto& [user, state] : stopped_ | std::views::reverse) {
    const bool left = !inventory || device_left(context_, *inventory, user);
    const Obstacle obstacle = obstacle_to_start(context_, user, state, left);
    if (obstacle != Obstacle::none) {
      after[user] = obstacle == Obstacle::no_device ? StoppedService::waits_for_a_device : state;
      if (obstacle == Obstacle::no_tool)
        out.notes.push_back(
            user.kind == Releasable::Kind::service
                ? fmt::format("{} is stopped and no service manager is there to start it", user.name)
                : fmt::format("persistence of {} is off and cannot be switched on", user.name));
      if (obstacle == Obstacle::stuck)
        out.notes.push_back(fmt::format(
            "{}: waits, since an earlier order about it has not returned (/run/ferry/stuck-writes)",
            user.resume_text()));
      continue;
    }
    report_step(Step::Kind::resume, user);
    auto started = set_running(user, true);
    if (started) {
      out.notes.push_back(again(user, tried_.contains(user)));
      continue;
    }
    Error error = std::move(started).error().during(user.resume_text());
    // The daemon may not know the GPU, or its driver may fail, and a second try would fail again.
    if (user.kind == Releasable::Kind::persistence && error.code == Errc::failed) {
      out.notes.push_back(error.message + "; see whether it is on: nvidia-smi -q -i " + user.name);
      continue;
    }
    after[user] = left ? StoppedService::to_start : StoppedService::waits_for_a_device;
    if (left) {
      error.hint = "the next run that binds or divides GPUs tries again";
      out.errors.push_back(std::move(error));
    } else {
      out.notes.push_back(error.message + "; no accelerator is left to it, it is started with the next one");
    }
  }
  if (auto written = record(std::move(after)); !written) out.errors.push_back(std::move(written).error());
  return out;
}

Result<bool> has_services_to_start(const RebindContext& context, const Inventory* scanned) {
  const auto record = read_service_record(*context.host);
  if (!record) return fail(record.error());
  if (record->services.empty()) return false;
  const auto inventory = scanned != nullptr ? Result<Inventory>(*scanned) : scan(*context.host);
  return std::ranges::any_of(record->services, [&](const auto& entry) {
    const auto& [user, state] = entry;
    const bool left = !inventory || device_left(context, *inventory, user);
    return obstacle_to_start(context, user, state, left) == Obstacle::none;
  });
}

Result<std::vector<std::string>> notes_on_stopped_services(const HostFs& host) {
  auto record = read_service_record(host);
  if (!record) return fail(std::move(record).error());
  std::vector<std::string> notes = std::move(record->notes);
  for (const auto& [user, state] : record->services) {
    if (state == StoppedService::to_start) {
      notes.push_back(user.kind == Releasable::Kind::service
                          ? fmt::format("{} was stopped by an earlier run: the next one starts it", user.name)
                          : fmt::format("left by an earlier run to the next: {}", user.resume_text()));
    } else {
      notes.push_back(user.kind == Releasable::Kind::service
                          ? fmt::format("{} is started again with the next accelerator", user.name)
                          : fmt::format("once a GPU is back on its driver: {}", user.resume_text()));
    }
  }
  return notes;
}

}  // namespace ferry::vfio
