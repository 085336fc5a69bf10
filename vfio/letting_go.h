// SPDX-License-Identifier: Apache-2.0
// Holders on the release list let go of the devices that move or are divided, before anything else is
// touched: first the plan of it, pure, then the orders.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vfio/inventory.h"
#include "vfio/release.h"
#include "vfio/stopped_services.h"

namespace ferry {

/// Who has to let go of some devices for a while: what stands in the way, but no objection.
struct Released {
  std::map<Releasable, std::vector<PciAddress>> holders;  ///< and of which functions
  std::map<std::string, std::set<std::string>> also;      ///< by module: the other devices it lets go of then
  void add(const Releasable& who, const Holder& holder, const PciAddress& function);
};

/// What of a release list can be had on a host: services only where somebody stops them.
std::set<std::string> possible_release(std::set<std::string> list, const Releaser* releaser);

/// Who is asked. nvidia-persistenced for single GPUs where it can be (`by_gpu`) and `serves_others` beside
/// one of them; `is_gpu` tells those that it is asked for by address.
std::set<Releasable> asked_to_let_go(const Released& released, bool by_gpu,
                                     const std::function<bool(const PciAddress&)>& is_gpu,
                                     const std::function<bool(const PciAddress&)>& serves_others);

/// Why modules of `released` cannot go: each device beside those of `freed` that they serve, which `stays`
/// ("which does not move with this").
std::vector<Error> serving_others(const Released& released, const std::set<std::string>& freed,
                                  const std::string& stays);

/// That `holder` has `what` open behind the order to let go.
Error held_on(const Releasable& holder, const std::string& what);

/// Puts the steps in which `holders` let go before all others, and those in which they take hold again
/// behind.
void release_around(std::vector<Step>& steps, const std::set<Releasable>& holders);
/// Those who let go by `steps`.
std::set<Releasable> releasing(const std::vector<Step>& steps);

/// One who needs devices free: a unit that moves, a GPU that is divided.
struct Asker {
  std::vector<PciAddress> devices;
  std::set<Releasable> holders;        ///< who is to let go, as planned
  std::set<Releasable> released = {};  ///< who has
  std::optional<Error> failure = {};   ///< why one of them has not
  std::optional<Error> refusal = {};   ///< why one of them was not asked
  bool out() const { return failure || refusal; }
};

/// In the order of Releasable for all askers together: what one of them waits for may hold another's device.
/// A module that serves a GPU of one that is out by then stays, since all of its devices have to be free.
void let_go(const ReleaseContext& context, const Inventory& inventory, StoppedServices& services,
            std::vector<Asker>& askers);

}  // namespace ferry
