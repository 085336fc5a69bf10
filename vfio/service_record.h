// SPDX-License-Identifier: Apache-2.0
// Who has let go of devices for Ferry and still has to take hold again (services to start, nvidia_drm to
// load, GPUs to give back to nvidia-persistenced), in run/ferry/hostd/stopped-services.json: written before,
// removed after it, so that a run that was killed in between is made good by the next. Void after a reboot
// (the host starts afresh then), told by the boot id.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/release.h"

namespace ferry {

enum class StoppedService {
  to_start,            ///< by whatever run comes next
  waits_for_a_device,  ///< finds no device that it would hold: once there is one again
};

struct ServiceRecord {
  std::map<Releasable, StoppedService> services;
  std::vector<std::string> notes;  ///< why a record was passed over (another boot)
};

/// Nothing when there is no record. Errc::malformed_host when it cannot be read: going on without it might
/// leave a service down for good.
Result<ServiceRecord> read_service_record(const HostFs& host);

/// Replaces the record; with no service left the file goes.
Result<> write_service_record(HostFs& host, const std::map<Releasable, StoppedService>& services);

}  // namespace ferry
