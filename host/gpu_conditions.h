// SPDX-License-Identifier: Apache-2.0
// The state of each accelerator, and the devices that a change makes unavailable, by a plan or an outcome.
// Only machine_name() reads the host.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/advertised_resources.h"
#include "api/host_status.h"
#include "host/node_apply.h"
#include "hostfs/host_fs.h"
#include "vfio/judgement/judge.h"
#include "vfio/pci/inventory.h"
#include "vfio/use_probe.h"

namespace ferry::host {

struct GpuCondition {
  api::GpuState state = api::GpuState::ready;
  std::vector<std::string> reasons;
  std::string hint;
  std::vector<vfio::DeviceUser> users;  ///< of a blocked GPU; filled after the plan

  /// True if device users are the only obstacle.
  bool only_in_use() const;
};
/// A GPU that is not in the map is as desired, or the policy does not cover it.
using GpuConditions = std::map<vfio::PciAddress, GpuCondition>;

/// Blocked, or pending if the plan writes to the GPU.
GpuConditions conditions_of(const NodePreview& preview);
/// Blocked or failed.
GpuConditions conditions_of(const NodeOutcome& outcome);
bool any(const GpuConditions& conditions, api::GpuState state);
/// True if `after` has a condition that `before` lacks, or has in another state.
bool adds_or_changes(const GpuConditions& after, const GpuConditions& before);
/// True if no GPU is blocked, or if some are in use, by pods and processes alone. Blocked GPUs that are not
/// in use do not count beside those.
bool only_pods_hold(const GpuConditions& conditions);

struct ScannedNode {
  vfio::Inventory inventory;
  mdev::VgpuInventory vgpus;
  /// The judgement of each accelerator's unit, as if all were asked for and had lost their vGPUs. The users
  /// of the devices are not looked up for it, but for a fabric manager that shares NVSwitches on vfio
  /// drivers; these are judged too.
  vfio::GpuFindings findings = {};
  std::string machine = {};  ///< api::NodeFeatures::machine
};

/// Adds, as blocked, the GPUs that are to be passed through, are on a vfio driver, and have a finding against
/// `ready`; and those of every mode that do not work (vfio::illness_of()).
void add_unready(const ScannedNode& node, const std::map<vfio::PciAddress, policy::Mode>& desired,
                 GpuConditions& conditions);
/// Adds, as blocked, the GPUs that are to serve the host, have no driver for that, and have no condition yet.
/// Returns their addresses.
std::set<std::string> add_driverless(const ScannedNode& node,
                                     const std::map<vfio::PciAddress, policy::Mode>& desired,
                                     GpuConditions& conditions);

bool writes(const NodePreview& preview);

/// Devices that may be advertised now and would change: functions on vfio drivers, functions in the plugin's
/// lists whatever their driver, and vGPUs.
std::vector<api::UnavailableDevice> unavailable_before_change(const NodePreview& preview,
                                                              const ScannedNode& node,
                                                              const api::AdvertisedResources& advertised);

/// Devices that will exist before the change is complete and may still be taken back: new vGPUs and functions
/// on their way to vfio. There is no wait for the plugin, since they are unavailable before they exist. The
/// vGPUs of a GPU that comes back from vfio first are not known yet.
std::vector<api::UnavailableDevice> unavailable_until_made(const NodePreview& preview);

/// Devices that a pod has, according to the plugin, if device users are the only obstacle to the change. They
/// are unavailable, so that no other pod gets them when this pod ends.
std::vector<api::UnavailableDevice> unavailable_until_pod_ends(const GpuConditions& conditions,
                                                               const ScannedNode& node,
                                                               const api::AdvertisedResources& advertised);

std::set<std::string> ids_of(const std::vector<api::UnavailableDevice>& unavailable);

/// The IDs of the board, "10de:16c1"; empty: it has none.
std::string subsystem_of(const vfio::PciFunction& function);

api::ReportedUser reported_user(const vfio::DeviceUser& user);

/// The state of each accelerator, sorted by address. `dra`: the GPUs that DRA has.
std::vector<api::AcceleratorStatus> describe(const ScannedNode& node,
                                             const std::map<vfio::PciAddress, policy::Mode>& desired,
                                             const GpuConditions& conditions,
                                             const policy::ModelNames& models,
                                             const std::set<vfio::PciAddress>& dra = {});

// Features of a whole node for its labels, from one scan.
// ABI: sysfs class dmi, drivers/firmware/dmi-id.c.

/// The machine's product name by DMI; empty: the firmware does not say.
std::string machine_name(const HostFs& host);

api::NodeFeatures features_of(const ScannedNode& node);

}  // namespace ferry::host
