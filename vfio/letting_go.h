// SPDX-License-Identifier: Apache-2.0
// Inside this room: holders on the release list let go of the devices that move, before anything else is
// touched.
#pragma once

#include <map>
#include <set>
#include <string>

#include "vfio/inventory.h"
#include "vfio/moving_units.h"
#include "vfio/release.h"
#include "vfio/stopped_services.h"

namespace ferry {

class LettingGo {
 public:
  LettingGo(const MoveContext& context, MovingUnits& units, StoppedServices& services)
      : context_(context), units_(units), services_(services) {}

  /// In the order of Releasable for all units together: what one of them waits for may hold another's device.
  /// A unit whose holder does not let go has failed.
  void let_go(const Inventory& inventory);

  /// Puts who let go into a plan made since, which knows nothing of what no longer stands in the way.
  void tell_released(Move& move) const;

 private:
  using UsersOfModules = std::map<std::string, std::size_t>;
  UsersOfModules users_of_modules() const;
  void stop_all(Releasable::Kind kind);
  void stop_what_holds_on(const Inventory& inventory);
  void keep_modules_that_are_needed(const UsersOfModules& planned);
  void note_released(const Move& move, const Releasable& holder);

  const MoveContext& context_;
  MovingUnits& units_;
  StoppedServices& services_;
  std::map<PciAddress, std::set<Releasable>> released_;  // by accelerator
};

}  // namespace ferry
