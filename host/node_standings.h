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
};

/// Whether anything would be written to a GPU.
bool writes(const NodePreview& preview);

/// What may be offered to the kubelet now and would be changed: functions on vfio drivers, and vGPUs.
std::vector<Withdrawal> going(const NodePreview& preview, const ScannedNode& node);

/// What a pod has, by the plugin, and nothing else keeps from being changed: withdrawn, so that no other pod
/// is given it when this one ends.
std::vector<Withdrawal> awaited(const GpuStandings& standings, const ScannedNode& node,
                                const OfferedDevices& offered);

/// Each accelerator as it is, in order of index.
std::vector<AcceleratorState> describe(const ScannedNode& node, const std::map<PciAddress, Mode>& wanted,
                                       const GpuStandings& standings, const ModelNames& models);

}  // namespace ferry
