// SPDX-License-Identifier: Apache-2.0
#include "vfio/service_record.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/boot_id.h"
#include "common/version.h"
#include "common/whole_json.h"
#include "vfio/release.h"

namespace ferry {
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

/// A map of the file, from name to state. An earlier version of the file had services only.
struct Section {
  const char* key;
  Releasable::Kind kind;
};
constexpr std::array kSections = {Section{.key = "services", .kind = Releasable::Kind::service},
                                  Section{.key = "modules", .kind = Releasable::Kind::module},
                                  Section{.key = "gpus", .kind = Releasable::Kind::persistence}};

// root starts and loads the names in the file, so only names that Ferry could have written are accepted.
bool could_be_ours(const Releasable& holder) {
  switch (holder.kind) {
    case Releasable::Kind::module:
      return holder.name == kConsoleModule;
    case Releasable::Kind::persistence: {
      const auto gpu = PciAddress::parse(holder.name);
      return gpu && gpu->text() == holder.name;
    }
    case Releasable::Kind::service:
      break;
  }
  const auto named = services_named(holder.name);
  return named && named->front() == holder.name && holder.name != kConsoleModule;
}

}  // namespace

Result<ServiceRecord> read_service_record(const HostFs& host) {
  ServiceRecord out;
  const auto text = host.read_file(kFile);
  if (!text) {
    if (is_gone(text.error())) return out;
    return fail(Error(text.error()));
  }
  try {
    const json record = parse_whole_json(*text);
    if (record.at("version").get<int>() != kVersionOfFormat)
      return broken("written by another version of ferry");
    if (record.at("boot_id").get<std::string>() != boot_id(host).value_or("")) {
      out.notes.push_back(
          fmt::format("/{} is of an earlier boot and void: systemd has started afresh", kFile));
      return out;
    }
    for (const auto& [key, kind] : kSections) {
      const json section =
          kind == Releasable::Kind::service ? record.at(key) : record.value(key, json::object());
      if (!section.is_object()) return broken(fmt::format("'{}' is no map", key));
      for (const auto& [name, state] : section.items()) {
        const Releasable holder{.kind = kind, .name = name};
        if (!could_be_ours(holder)) return broken(fmt::format("'{}' is no name for '{}'", name, key));
        if (state != kToStart && state != kWaits)
          return broken(name + " is neither to be started nor waiting");
        out.services[holder] =
            state == kWaits ? StoppedService::waits_for_a_device : StoppedService::to_start;
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
    for (const auto& [holder, state] : services) {
      if (holder.kind == kind)
        record[key][holder.name] = state == StoppedService::waits_for_a_device ? kWaits : kToStart;
    }
  }
  return host.write_file(kFile, record.dump(2) + "\n");
}

}  // namespace ferry
