// SPDX-License-Identifier: Apache-2.0
#include "vfio/service_record.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/boot_id.h"
#include "common/version.h"
#include "vfio/release.h"

namespace ferry {
namespace {

using nlohmann::json;
constexpr const char* kFile = "run/ferry/stopped-services.json";
constexpr int kVersionOfFormat = 1;
constexpr const char* kToStart = "to start";
constexpr const char* kWaits = "waits for a device";

tl::unexpected<Error> broken(const std::string& why) {
  return fail(Errc::malformed_host, fmt::format("/{}: {}", kFile, why),
              "the file says which services to start again; mend it, or start them and remove it");
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
    const json record = json::parse(*text);
    if (record.at("version").get<int>() != kVersionOfFormat)
      return broken("written by another version of ferry");
    if (record.at("boot_id").get<std::string>() != boot_id(host).value_or("")) {
      out.notes.push_back(
          fmt::format("/{} is of an earlier boot and void: systemd has started afresh", kFile));
      return out;
    }
    for (const auto& [unit, state] : record.at("services").items()) {
      // What stands here is started by root: nothing but what could have been written.
      const auto named = services_named(unit);
      if (!named || named->front() != unit) return broken("'" + unit + "' is not the name of a service");
      if (state != kToStart && state != kWaits) return broken(unit + " is neither to be started nor waiting");
      out.services[unit] = state == kWaits ? StoppedService::waits_for_a_device : StoppedService::to_start;
    }
    return out;
  } catch (const json::exception& error) {
    return broken(error.what());
  }
}

Result<> write_service_record(HostFs& host, const std::map<std::string, StoppedService>& services) {
  if (services.empty()) return host.remove_file(kFile);
  const auto boot = boot_id(host);
  if (!boot) return fail(Error(boot.error()).during("record which services are stopped"));
  json units = json::object();
  for (const auto& [unit, state] : services)
    units[unit] = state == StoppedService::waits_for_a_device ? kWaits : kToStart;
  const json record = {
      {"version", kVersionOfFormat}, {"ferry", kVersion}, {"boot_id", *boot}, {"services", units}};
  return host.write_file(kFile, record.dump(2) + "\n");
}

}  // namespace ferry
