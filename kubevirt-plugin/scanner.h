// SPDX-License-Identifier: Apache-2.0
// From the host to what is offered.
//
// ABI: Documentation/ABI/testing/sysfs-kernel-iommu_groups, sysfs-bus-pci, vfio-mdev.rst; names and node
// order as NVIDIA's KubeVirt plugin v1.6.0 has them, save where that gives away more than was asked for.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kubevirt-plugin/device_names.h"
#include "kubevirt-plugin/fatal_errors.h"
#include "kubevirt-plugin/offer_assembly.h"
#include "kubevirt-plugin/offer_rules.h"
#include "kubevirt-plugin/offered_device.h"
#include "mdev/vgpu_inventory.h"

namespace ferry {

/// What is known of a host's vGPUs: scan_vgpus(), or what knows more names of types.
using ReadVgpus =
    std::function<Result<VgpuInventory>(const HostFs&, const Inventory&, const AcceleratorRules&)>;

class Scanner {
 public:
  /// `host` and `rules` must outlive this.
  Scanner(const HostFs& host, const OfferRules& rules, ReadVgpus read_vgpus = scan_vgpus);

  /// Reads the host. Offered are
  /// - accelerators on a vfio driver whose whole IOMMU group can be given to a VM (blocks_viability() of
  ///   none), one resource for each name (device_names.h), the hex device ID where there is no legal one;
  /// - vGPUs of the accelerators, one resource for each type: mediated devices by their UUIDs, virtual
  ///   functions that carry one (vendor-specific VFIO) by their addresses;
  /// - where companions have places, those of each GPU with it, and the resources of the places;
  /// - for Kata accelerators and those on request, under its own names and IDs (KataRules).
  /// A vGPU that is there and can be read no more is offered Unhealthy, under the name that it had.
  /// While a write to a GPU is under way its vGPUs are offered as they were, but for those that the write is
  /// to: nothing that its driver serves is read then. Of one that may never return none is offered.
  /// One whose node in dev/vfio is missing, or that has had a fatal PCIe error since the first scan (or
  /// remember()) and was not bound anew since, itself or its GPU, is offered Unhealthy. Errors: the PCI bus
  /// cannot be listed. That there is no mdev bus is none.
  Result<Offer> scan();

  /// What a scanner before this one has found (Offer::fatal_errors).
  void remember(const FatalErrorsOf& before) { fatal_errors_.remember(before); }

 private:
  class Round;
  std::vector<NotOffered> vanished_since(const VgpuInventory& now);
  /// Learns which types have which names, and names the vGPUs of those that nothing on the host names now.
  void name_types(VgpuInventory& vgpus);
  /// Puts in what was known of GPUs that cannot be read, or not while a write is under way. Gives whether any
  /// is so.
  bool keep_what_was_known(VgpuInventory& vgpus);
  /// Puts in the vGPUs that are there and that nobody can tell us of. Gives whether anything of the GPU's
  /// could not be read.
  bool keep_what_is_unread(VgpuGpu& gpu);

  const HostFs& host_;
  const OfferRules& rules_;
  const ReadVgpus read_vgpus_;
  DeviceNames names_;
  FatalErrors fatal_errors_;                     // of GPUs that carry vGPUs, too
  std::map<std::string, std::string> mediated_;  // of the scan before: UUID -> type
  // The driver of vGPUs that are virtual functions names a type only while another one of it could be made;
  // one of mediated devices names them as long as it answers.
  using TypeNames = std::map<std::string, std::string>;  // number -> name
  using Gpu = std::pair<PciAddress, std::string>;        // its address and model
  std::map<Gpu, TypeNames> type_names_;
  std::map<Gpu, std::vector<VgpuDevice>> known_;  // when it could be read
  std::set<std::string> unread_;                  // of those, what is as it was then
};

}  // namespace ferry
