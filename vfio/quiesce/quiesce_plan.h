// SPDX-License-Identifier: Apache-2.0
// Quiesces services and modules on the release list before drivers change or GPUs are divided: first the
// plan, which is pure, then the orders.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "vfio/pci/inventory.h"
#include "vfio/quiesce/release.h"
#include "vfio/quiesce/stopped_services.h"

namespace ferry::vfio {

/// Services and modules to quiesce, so that their open devices are no objection.
struct QuiescePlan {
  std::map<Releasable, std::vector<PciAddress>> users;  ///< each with the functions that it uses
  std::map<std::string, std::set<std::string>> also;    ///< by module: other devices that it closes as well
  void add(const Releasable& who, const DeviceUser& user, const PciAddress& function);
};

/// The part of a release list that this host can quiesce: services only if there is a service manager.
std::set<std::string> possible_release(std::set<std::string> list, const ServiceManager* service_manager);

/// The services and modules to quiesce. nvidia-persistenced is quiesced for single GPUs with `by_gpu`, if it
/// uses only GPUs (`is_gpu`) and serves others (`serves_others`); else its service stops.
std::set<Releasable> users_to_quiesce(const QuiescePlan& plan, bool by_gpu,
                                      const std::function<bool(const PciAddress&)>& is_gpu,
                                      const std::function<bool(const PciAddress&)>& serves_others);

/// Errors for modules of `plan` that cannot be unloaded: one for each device that such a module serves
/// beside `freed`. `stays` describes that device ("which stays on its driver").
std::vector<Error> serving_others(const QuiescePlan& plan, const std::set<std::string>& freed,
                                  const std::string& stays);

/// The error that `user` still uses the device after it was quiesced.
Error still_in_use(const Releasable& user, const std::string& what);

/// Puts the steps that quiesce `users` before all other steps, and those that resume them at the end.
void quiesce_around(std::vector<Step>& steps, const std::set<Releasable>& users);
std::set<Releasable> users_quiesced_by(const std::vector<Step>& steps);

/// Devices that must be free for a change: those of a unit whose drivers change, or a GPU that is divided.
struct QuiesceRequest {
  std::vector<PciAddress> devices;
  std::set<Releasable> users;          ///< to quiesce, as planned
  std::set<Releasable> released = {};  ///< quiesced so far
  std::optional<Error> failure = {};   ///< set: a service or module could not be quiesced
  std::optional<Error> refusal = {};   ///< set: a module was left loaded on purpose, or a GPU was not closed
  bool dropped_out() const { return failure || refusal; }
};

/// Quiesces for all requests together, in the order of Releasable, since one request's service may use
/// another's device. A module whose devices are not all free, because a request has dropped out, stays
/// loaded.
void quiesce(const RebindContext& context, const Inventory& inventory, StoppedServices& services,
             std::vector<QuiesceRequest>& requests);

}  // namespace ferry::vfio
