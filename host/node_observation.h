// SPDX-License-Identifier: Apache-2.0
// Reads the facts of a round's snapshot (reconcile.h) from the host.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/advertised_resources.h"
#include "common/result.h"
#include "host/claims/gpu_allocation.h"
#include "host/gpu_conditions.h"
#include "host/node_apply.h"
#include "host/usage/advertised_use_probe.h"
#include "hostfs/host_fs.h"
#include "vfio/judgement/fatal_errors.h"
#include "vfio/judgement/unit_facts.h"
#include "vfio/pci/pci_address.h"
#include "vfio/use_probe.h"

namespace ferry::host {

/// Adds devices that the plugin still lists to the device users that the probes find.
class GuardedProbes {
 public:
  /// All must outlive this object.
  GuardedProbes(const HostFs& host, const NodeProbes& uses, const StillAdvertisedProbe::Asked& asked)
      : rebinds_(host, uses.for_rebinds, asked),
        vgpus_(host, uses.for_vgpus, asked),
        open_(uses.open_nodes) {}
  NodeProbes probes() { return {.for_rebinds = rebinds_, .for_vgpus = vgpus_, .open_nodes = open_}; }

 private:
  StillAdvertisedProbe rebinds_;
  StillAdvertisedProbe vgpus_;
  vfio::UseProbe& open_;
};

/// The memory of a process that scans often, for its judgement.
struct BusWatch {
  vfio::BusMemory bus;
  vfio::FatalErrors errors;
};

/// Scans and judges. With `watch`, the GPUs that `policy` passes through or gives to DRA, and those of
/// NodeContext::dra, are woken once for each binding. Numbers in `policy` mean GPUs as in
/// resolve_numbers(). Errors: the PCI bus, or another directory of the host
/// that exists, cannot be listed.
Result<ScannedNode> scan_node(const NodeContext& context, BusWatch* watch = nullptr,
                              const policy::Policy* policy = nullptr);

/// True if GPUs, or functions of their groups and cards, came, went or changed drivers since the scan of a
/// plan, and not by that plan. `planned` is its scan. Virtual functions do not count.
bool is_outdated(const NodePreview& plan, const ScannedNode& planned, const ScannedNode& now);

/// True if an earlier run left driver locks, or stopped services that can start now, which any later run
/// restores. Also if that cannot be read. `scanned` as in vfio::has_services_to_start().
bool has_leftovers(const NodeContext& context, const vfio::Inventory* scanned = nullptr);
/// The same, and true if a killed run left records of virtual functions that are gone.
bool has_leftovers(const NodeContext& context, const ScannedNode& node);

/// Finds the users of blocked GPUs that have none listed yet. A GPU has none if the probe fails.
void add_users(const HostFs& host, const ScannedNode& node, vfio::UseProbe& uses, GpuConditions& conditions);

/// The users of a GPU that is to change its allocation. Services and modules of `release` do not count, since
/// a claim quiesces them. If the probe fails, the error is the reason.
GpuUse use_of(const HostFs& host, const ScannedNode& node, vfio::UseProbe& uses, const vfio::PciAddress& gpu,
              const std::set<std::string>& release);

/// The users of the pending GPUs with a device that is among `asked` and still in the plugin's lists. The
/// lists of Kata name IOMMU groups, so this reads sysfs.
std::map<vfio::PciAddress, std::vector<vfio::DeviceUser>> users_of_listed(
    const HostFs& host, const ScannedNode& node, vfio::UseProbe& uses, const GpuConditions& conditions,
    const std::set<std::string>& asked, const api::AdvertisedResources& listed);

}  // namespace ferry::host
