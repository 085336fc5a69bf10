// SPDX-License-Identifier: Apache-2.0
// The services that are stopped while groups move: each once, recorded before, and started again whatever
// becomes of the groups. What a killed run left stopped is taken over.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "vfio/move_apply.h"
#include "vfio/service_record.h"

namespace ferry {

class StoppedServices {
 public:
  /// `context` must outlive this. Without a releaser nothing is stopped or started.
  explicit StoppedServices(const MoveContext& context) : context_(context) {}

  /// Takes over what an earlier run left stopped. Errors as read_service_record().
  Result<> take_over();

  /// Stops `unit`, or says again what came of it. On an error it may be stopped or not: it is started again
  /// with the others.
  Result<> stop(const std::string& unit);

  struct Restart {
    std::vector<std::string> notes;
    std::vector<Error> errors;  ///< services that do not start although devices are left, or the record
  };
  /// Starts all. One that does not start although no accelerator is left on a driver of the host waits until
  /// there is one again, since most find nothing to do without; that is a note.
  Restart start_all();

 private:
  void tell(Step::Kind kind, const std::string& unit) const;

  const MoveContext& context_;
  std::map<std::string, StoppedService> stopped_;  ///< as recorded
  std::map<std::string, Result<>> tried_;          ///< by this run
  std::vector<std::string> notes_;                 ///< of the record
};

/// For people: what an earlier run has left to be started. Errors as read_service_record().
Result<std::vector<std::string>> notes_on_stopped_services(const HostFs& host);

}  // namespace ferry
