// SPDX-License-Identifier: Apache-2.0
// Pure functions from a plan or an outcome to the state of each accelerator and to the withdrawals that it
// needs.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/withdrawals.h"
#include "host/node_apply.h"
#include "host/node_state.h"
#include "host/offered_devices.h"
#include "vfio/inventory.h"
#include "vfio/use_probe.h"

namespace ferry {

struct GpuStanding {
  Standing state = Standing::as_wanted;
  std::vector<std::string> reasons;
  std::string hint;
  std::vector<Holder> holders;  ///< of a refused GPU; filled after the plan

  /// True if device users are the only obstacle.
  bool only_in_use() const;
};
/// A GPU that is not in the map is as desired, or the policy does not cover it.
using GpuStandings = std::map<PciAddress, GpuStanding>;

/// refused, or waiting if the plan writes to the GPU
GpuStandings standings_of(const NodePreview& preview);
/// refused or failed
GpuStandings standings_of(const NodeOutcome& outcome);
bool any(const GpuStandings& standings, Standing state);

/// The result of one scan of the host.
struct ScannedNode {
  Inventory inventory;
  VgpuInventory vgpus;
  std::string machine = {};  ///< NodeFeatures::machine
};

/// True if the plan writes to any GPU.
bool writes(const NodePreview& preview);

/// Devices that may be advertised now and would change: functions on vfio drivers, functions in the plugin's
/// lists whatever their driver, and vGPUs.
std::vector<Withdrawal> going(const NodePreview& preview, const ScannedNode& node,
                              const OfferedDevices& offered);

/// Devices that will exist before the change is complete and may still be taken back: new vGPUs and functions
/// on their way to vfio. There is no wait for the plugin, since they are withdrawn before they exist. The
/// vGPUs of a GPU that comes back from vfio first are not known yet.
std::vector<Withdrawal> coming(const NodePreview& preview);

/// Devices that a pod has, according to the plugin, if device users are the only obstacle to the change. They
/// are withdrawn, so that no other pod gets them when this pod ends.
std::vector<Withdrawal> awaited(const GpuStandings& standings, const ScannedNode& node,
                                const OfferedDevices& offered);

/// A device user in the form of state.json.
StateHolder state_holder(const Holder& holder);

/// The state of each accelerator, sorted by address.
std::vector<AcceleratorState> describe(const ScannedNode& node, const std::map<PciAddress, Mode>& wanted,
                                       const GpuStandings& standings, const ModelNames& models);

}  // namespace ferry
