// SPDX-License-Identifier: Apache-2.0
// From what was planned or done on a node to how each of its accelerators stands, and to what the kubelet
// must not be offered meanwhile: pure functions.
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
  std::vector<Holder> holders;  ///< who is asked for afterwards, of a refused one

  /// Whether nothing but its holders stands in the way.
  bool only_in_use() const;
};
/// GPUs that are not in it are as wanted, or nothing is wanted of them.
using GpuStandings = std::map<PciAddress, GpuStanding>;

/// Refused, or waiting where something would be written.
GpuStandings standings_of(const NodePreview& preview);
/// Refused or failed.
GpuStandings standings_of(const NodeOutcome& outcome);
bool any(const GpuStandings& standings, Standing state);

/// A host as it was scanned.
struct ScannedNode {
  Inventory inventory;
  VgpuInventory vgpus;
  std::string machine = {};  ///< NodeFeatures::machine
};

/// Whether anything would be written to a GPU.
bool writes(const NodePreview& preview);

/// What may be offered to the kubelet now and would be changed: functions that are on vfio drivers or,
/// whatever they are on, in its lists; and vGPUs.
std::vector<Withdrawal> going(const NodePreview& preview, const ScannedNode& node,
                              const OfferedDevices& offered);

/// What will be there to be offered before it is as it shall be, and may still be taken back: vGPUs that are
/// made and functions that go to vfio. Nobody need be waited for: it is withdrawn before it is there. vGPUs
/// of a GPU that comes back from vfio first are not known yet.
std::vector<Withdrawal> coming(const NodePreview& preview);

/// What a pod has, by the plugin, and nothing else keeps from being changed: withdrawn, so that no other pod
/// is given it when this one ends.
std::vector<Withdrawal> awaited(const GpuStandings& standings, const ScannedNode& node,
                                const OfferedDevices& offered);

/// A holder as state.json tells of it.
StateHolder state_holder(const Holder& holder);

/// Each accelerator as it is, in order of index.
std::vector<AcceleratorState> describe(const ScannedNode& node, const std::map<PciAddress, Mode>& wanted,
                                       const GpuStandings& standings, const ModelNames& models);

}  // namespace ferry
