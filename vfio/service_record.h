// SPDX-License-Identifier: Apache-2.0
// Which services of the host Ferry has stopped and still has to start, in run/ferry/stopped-services.json:
// written before the stop, removed after the start, so that a run that was killed in between is made good by
// the next. Void after a reboot (systemd starts them then), told by the boot id.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"

namespace ferry {

enum class StoppedService {
  to_start,            ///< by whatever run comes next
  waits_for_a_device,  ///< would not start while no device was left to it: once there is one again
};

struct ServiceRecord {
  std::map<std::string, StoppedService> services;  ///< by unit name
  std::vector<std::string> notes;                  ///< why a record was passed over (another boot)
};

/// Nothing when there is no record. Errc::malformed_host when it cannot be read: going on without it might
/// leave a service down for good.
Result<ServiceRecord> read_service_record(const HostFs& host);

/// Replaces the record; with no service left the file goes.
Result<> write_service_record(HostFs& host, const std::map<std::string, StoppedService>& services);

}  // namespace ferry
