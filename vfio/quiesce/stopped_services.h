// SPDX-License-Identifier: Apache-2.0
// Quiesces services, nvidia_drm and nvidia-persistenced for one GPU while drivers change or GPUs are divided.
// Each is recorded, then ordered once, and resumes whatever the outcome of the change. Services that a killed
// run left quiesced are taken over.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "vfio/quiesce/release.h"
#include "vfio/rebind_context.h"

namespace ferry::vfio {

// Records services and modules that Ferry has quiesced and must resume (services to start, nvidia_drm to
// load, GPUs to return to nvidia-persistenced), in run/ferry/hostd/stopped-services.json. It is written
// before they are quiesced and removed after they resume, so that the next run resumes those of a killed run.
// After a reboot, seen by the boot id, the host has started afresh and the record is void.

enum class StoppedService {
  to_start,            ///< the next run starts it
  waits_for_a_device,  ///< no device is left to it: starts once there is one again
};

struct ServiceRecord {
  std::map<Releasable, StoppedService> services;
  std::vector<std::string> notes;  ///< the reason why a record was skipped (another boot)
};

/// Reads the record, which is empty if there is no file. Errors: the file or the running boot's id cannot be
/// read, and going on without it might leave a service down for good.
Result<ServiceRecord> read_service_record(const HostFs& host);

/// Replaces the record; without services the file is removed.
Result<> write_service_record(HostFs& host, const std::map<Releasable, StoppedService>& services);

class StoppedServices {
 public:
  explicit StoppedServices(RebindContext context) : context_(std::move(context)) {}

  /// Takes over services that an earlier run left stopped. Errors as read_service_record().
  Result<> take_over();

  /// Quiesces `user`, or returns the result of the first try. After an error it may be quiesced or not, and
  /// resumes with the others. A GPU about which no daemon was asked does not.
  Result<> stop(const Releasable& user);

  struct Restart {
    std::vector<std::string> notes;
    std::vector<Error> errors;  ///< services that do not start although devices are left; an unwritten record
  };
  /// Resumes all. A service that does not start while no accelerator is on a host driver waits for one, with
  /// a note, since most find nothing to do without. A module waits for a device of its driver, and a GPU's
  /// persistence for that GPU.
  Restart start_all();

 private:
  void report_step(Step::Kind kind, const Releasable& user) const;
  /// Starts the user again, or stops it.
  Result<> set_running(const Releasable& user, bool run) const;
  Result<> record(std::map<Releasable, StoppedService> after);

  const RebindContext context_;
  std::map<Releasable, StoppedService> stopped_;  ///< as recorded
  std::map<Releasable, Result<>> tried_;          ///< results of this run
  std::vector<std::string> notes_;                ///< of the record
};

template <typename Outcome>
void add_results(const StoppedServices::Restart& restart, Result<Outcome>& outcome) {
  if (outcome) {
    std::ranges::copy(restart.notes, std::back_inserter(outcome->notes));
    std::ranges::copy(restart.errors, std::back_inserter(outcome->errors));
  } else {
    for (const Error& error : restart.errors) outcome.error().message += "; " + error.message;
  }
}

/// True if start_all() would resume a service or module now. One that waits for a device or a tool counts
/// once that is there. `scanned` is a scan of a moment ago; nullptr: this function scans. Errors as
/// read_service_record().
Result<bool> has_services_to_start(const RebindContext& context, const Inventory* scanned = nullptr);

/// Messages about services that an earlier run left to be started. Errors as read_service_record().
Result<std::vector<std::string>> notes_on_stopped_services(const HostFs& host);

}  // namespace ferry::vfio
