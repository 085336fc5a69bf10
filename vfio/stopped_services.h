// SPDX-License-Identifier: Apache-2.0
// Who lets go of devices while groups move or GPUs are divided (services, nvidia_drm, nvidia-persistenced for
// one GPU): each is asked once, recorded before, and takes hold again whatever becomes of those. What a
// killed run left is taken over.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/host_fs.h"
#include "common/host_writer.h"
#include "common/result.h"
#include "vfio/inventory.h"
#include "vfio/move_plan.h"
#include "vfio/release.h"
#include "vfio/service_record.h"
#include "vfio/use_probe.h"

namespace ferry {

/// Through what holders let go and take hold again.
struct ReleaseContext {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  UseProbe* probe = nullptr;
  AcceleratorRules rules;
  std::function<void(const Step&)> on_step = {};  ///< before each order; may be empty
  Releaser* releaser = nullptr;                   ///< nullptr: no service is stopped or started
  PersistenceSwitch* persistence = nullptr;  ///< nullptr: nvidia-persistenced lets go of all GPUs or none
};

class StoppedServices {
 public:
  explicit StoppedServices(ReleaseContext context) : context_(std::move(context)) {}

  /// Takes over what an earlier run left stopped. Errors as read_service_record().
  Result<> take_over();

  /// Has `holder` let go, or says again what came of it. On an error it may have let go or not: it takes hold
  /// again with the others. Only GPUs whose persistence could not be switched are nothing to switch back.
  Result<> stop(const Releasable& holder);

  struct Restart {
    std::vector<std::string> notes;
    std::vector<Error> errors;  ///< services that do not start although devices are left, or the record
  };
  /// Starts all. A service that does not start although no accelerator is left on a driver of the host waits
  /// until there is one again, since most find nothing to do without; that is a note. A module waits for a
  /// device of its driver, a GPU's persistence for that GPU.
  Restart start_all();

 private:
  void tell(Step::Kind kind, const Releasable& holder) const;
  Result<> let_go(const Releasable& holder) const;
  Result<> take_hold(const Releasable& holder) const;
  Result<> record(std::map<Releasable, StoppedService> after);
  /// Whether an earlier order about it, of whatever run, has not returned: a second would only queue behind
  /// it.
  bool is_stuck(const Releasable& holder) const;

  const ReleaseContext context_;
  std::map<Releasable, StoppedService> stopped_;  ///< as recorded
  std::map<Releasable, Result<>> tried_;          ///< by this run
  std::vector<std::string> notes_;                ///< of the record
};

/// Tells beside what became of the work what became of those who let go for it.
template <typename Outcome>
void tell(const StoppedServices::Restart& restart, Result<Outcome>& outcome) {
  if (outcome) {
    std::ranges::copy(restart.notes, std::back_inserter(outcome->notes));
    std::ranges::copy(restart.errors, std::back_inserter(outcome->errors));
  } else {
    for (const Error& error : restart.errors) outcome.error().message += "; " + error.message;
  }
}

/// For people: what an earlier run has left to be started. Errors as read_service_record().
Result<std::vector<std::string>> notes_on_stopped_services(const HostFs& host);

}  // namespace ferry
