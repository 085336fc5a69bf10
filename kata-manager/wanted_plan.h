// SPDX-License-Identifier: Apache-2.0
// What the wanted classes of a host come to as it is now: what is changed at once, and what of it has to
// wait, and why. A class that cannot be put on this host keeps no other from it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kata-manager/kata_install.h"
#include "kata-manager/ready_handlers.h"
#include "kata-manager/wanted_classes.h"

namespace ferry {

struct WantedPlan {
  /// All that may be changed now. What has to wait stays as it is: a class without its files, a handler that
  /// leaves and has a label, or a pod, still.
  KataChange change;
  bool needed = false;               ///< something is to be written, or to be read by the runtime
  std::set<std::string> changed;     ///< handlers that it is needed for, and those that it takes away
  std::set<std::string> leaving;     ///< handlers that are here and not wanted, those that wait too
  std::vector<OtherHandler> others;  ///< what waits for something else than a permission, by name
};

/// What is asked of, beside the host's files.
struct WantedSight {
  const RuntimeAtHand* runtime = nullptr;
  ContainerRuntime* asked = nullptr;  ///< for its pods
  RuntimeState state;                 ///< as it has said; one that does not tell leaves it to the files
  KataDevices devices;
};

/// Nothing is written. `file` is what is wanted of the carried one (wanted_class_file()).
/// Errors: as plan_kata(), and placed_runtimes(), where they do not come from one class alone.
Result<WantedPlan> plan_wanted(const HostFs& host, const WantedClasses& wanted, const ClassFile& file,
                               const WantedSight& sight);

}  // namespace ferry
