// SPDX-License-Identifier: Apache-2.0
// Records services and modules that Ferry has quiesced and must resume (services to start, nvidia_drm to
// load, GPUs to return to nvidia-persistenced), in run/ferry/hostd/stopped-services.json. It is written
// before they are quiesced and removed after they resume, so that the next run resumes those of a killed run.
// After a reboot, seen by the boot id, the host has started afresh and the record is void.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "vfio/release.h"

namespace ferry {

enum class StoppedService {
  to_start,            ///< the next run starts it
  waits_for_a_device,  ///< no device is left to it: starts once there is one again
};

struct ServiceRecord {
  std::map<Releasable, StoppedService> services;
  std::vector<std::string> notes;  ///< the reason why a record was skipped (another boot)
};

/// Reads the record, which is empty if there is no file. Errc::malformed_host: the file cannot be read, and
/// going on without it might leave a service down for good.
Result<ServiceRecord> read_service_record(const HostFs& host);

/// Replaces the record; without services the file is removed.
Result<> write_service_record(HostFs& host, const std::map<Releasable, StoppedService>& services);

}  // namespace ferry
