// SPDX-License-Identifier: Apache-2.0
// Plans the wanted classes for the host as it is: the changes that may be made now, and the handlers that
// must wait, with the reason. A class that cannot be set up does not block the others.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kata-manager/classes/wanted_classes.h"
#include "kata-manager/controller/kata_install.h"
#include "kata-manager/controller/ready_handlers.h"

namespace ferry::kata {

struct WantedPlan {
  /// The changes that may be made now. The rest stays as it is: a class without its files, and a leaving
  /// handler that still has a label or a pod.
  KataChange change;
  bool needed = false;               ///< a file must be written, or the runtime must read its files
  std::set<std::string> changed;     ///< handlers that the change adds, alters or removes
  std::set<std::string> leaving;     ///< handlers on the host that are not wanted, waiting ones included
  std::vector<OtherHandler> others;  ///< handlers that wait, but not for a permission, by name
};

/// The planner's input beside the host's files.
struct WantedSight {
  const RuntimeAtHand* runtime = nullptr;
  ContainerRuntime* asked = nullptr;  ///< queried for its pods
  RuntimeState state;                 ///< its answer; if that has no runtimes, the files count
  KataDevices devices;
};

/// Writes nothing. `file` is wanted_class_file() of `wanted`. Errors, if they do not come from one class
/// alone: as plan_kata() and placed_runtimes().
Result<WantedPlan> plan_wanted(const HostFs& host, const WantedClasses& wanted, const ClassFile& file,
                               const WantedSight& sight);

}  // namespace ferry::kata
