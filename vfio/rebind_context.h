// SPDX-License-Identifier: Apache-2.0
// The means to change drivers, and one step of such a change, as bind/ and quiesce/ share them.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "hostfs/host_writer.h"
#include "vfio/pci/inventory.h"
#include "vfio/quiesce/release.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {

class DriverLock;

/// A single write, or an order to quiesce or resume. `value` is a module, an override ("" clears it) or a
/// driver, depending on the kind.
struct Step {
  enum class Kind { quiesce, load_module, set_override, unbind, bind, probe, resume };
  Kind kind = Kind::bind;
  PciAddress address = {};  ///< the function; of load_module: the one whose driver was unloaded, if any
  std::string value = {};
  std::string why = {};
  Releasable user = {};  ///< the service or module to quiesce or resume; unused for other kinds
  /// The step in words: "unbind 0000:01:00.1 from snd_hda_intel".
  std::string text() const;
  bool of_a_device_user() const { return kind == Kind::quiesce || kind == Kind::resume; }
  bool of_a_function() const { return kind != Kind::load_module && !of_a_device_user(); }
  bool operator==(const Step&) const = default;
};

/// The means to change drivers. A caller of apply_rebinds() holds the node's lock (hostfs/locks.h).
struct RebindContext {
  HostFs* host = nullptr;
  HostWriter* writer = nullptr;
  UseProbe* probe = nullptr;
  AcceleratorRules rules;
  /// Reports progress before each write, from one thread at a time; may be empty.
  std::function<void(const Step&)> on_step;
  DriverLock* driver_lock = nullptr;  ///< nullptr: no driver of this host has a lock against unbinding
  /// nullptr: no service is stopped, despite RebindRequest::release.
  ServiceManager* service_manager = nullptr;
  PersistenceSwitch* persistence = nullptr;  ///< nullptr: nvidia-persistenced gives up all GPUs or none
  /// Called behind the fence of a bind: returns the devices that must stay, like RebindRequest::untouchable.
  /// That list may be outdated by then, since no lock of Ferry keeps vGPUs from being created. Empty: only
  /// that list counts.
  std::function<Result<std::map<PciAddress, std::string>>(const Inventory&)> must_stay = {};
};

}  // namespace ferry::vfio
