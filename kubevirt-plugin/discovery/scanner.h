// SPDX-License-Identifier: Apache-2.0
// Scans the host for devices to advertise.
//
// ABI: Documentation/ABI/testing/sysfs-kernel-iommu_groups, sysfs-bus-pci, vfio-mdev.rst. Names and node
// order as in NVIDIA's KubeVirt plugin v1.6.0, except where that plugin gives a pod too much.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanned_device.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/judgement/fatal_errors.h"
#include "vfio/judgement/judge.h"
#include "vfio/judgement/unit_facts.h"

namespace ferry::plugin {

/// Reads the vGPUs of a host: scan_vgpus(), or a function that knows more names of types.
using ReadVgpus = std::function<Result<mdev::VgpuInventory>(const HostFs&, const vfio::Inventory&,
                                                            const vfio::AcceleratorRules&)>;

/// The part of a resource's name before the "/". Errc::unsupported: no table has the vendor.
Result<std::string> resource_domain(const ResourceRules& rules, std::uint16_t vendor, DeviceNames& names);

class Scanner {
 public:
  /// `host` and `rules` must outlive this object.
  Scanner(const HostFs& host, const ResourceRules& rules, ReadVgpus read_vgpus = mdev::scan_vgpus);

  /// Reads the host. It advertises
  /// - accelerators on a vfio driver whose whole IOMMU group can go to a VM (blocks_viability() of none), one
  ///   resource for each name (device_names.h), or for the hex device ID if the name is not legal;
  /// - vGPUs of the accelerators, with one resource for each type: mediated devices by their UUIDs, virtual
  ///   functions with a vGPU (vendor-specific VFIO) by their addresses;
  /// - if companions have places, each GPU's companions with it, and the resources of the places;
  /// - for Kata, accelerators and those on request, with Kata's own names and IDs (KataRules).
  /// A vGPU that exists and can no longer be read is Unhealthy, under its earlier name. While a GPU is
  /// being written to, its vGPUs stay as they were, without reads, except those that the write concerns.
  /// If that write may never return, none is advertised. A device is Unhealthy if its node in dev/vfio is
  /// missing. The same holds if it or its GPU had a fatal PCIe error since the first scan (or remember())
  /// and no new binding since. Errors: the PCI bus cannot be listed; a missing mdev bus is not an error.
  Result<ResourceSet> scan();

  /// Takes a finding of an earlier scanner (ResourceSet::fatal_errors).
  void remember(const vfio::FatalErrorsOf& before) { fatal_errors_.remember(before); }

  /// Makes the next scan wake the sleeping functions once more: Allocate has found one off the bus.
  void doubt() { bus_.doubt(); }

 private:
  class Round;
  std::vector<NotAdvertised> vanished_since(const mdev::VgpuInventory& now);
  /// Learns the names of types, and names vGPUs whose type nothing on the host names now.
  void name_types(mdev::VgpuInventory& vgpus);
  /// Restores the vGPUs of GPUs that cannot be read, also because of a write in progress. True: there is such
  /// a GPU.
  bool keep_what_was_known(mdev::VgpuInventory& vgpus);
  /// Restores a GPU's vGPUs that exist and cannot be read. True: a part of the GPU could not be read.
  bool keep_what_is_unread(mdev::VgpuGpu& gpu);

  const HostFs& host_;
  const ResourceRules& rules_;
  const ReadVgpus read_vgpus_;
  DeviceNames names_;
  vfio::FatalErrors fatal_errors_;  // including those of GPUs that carry vGPUs
  vfio::BusMemory bus_;
  std::map<std::string, std::string> mediated_;  // of the previous scan: UUID -> type
  // For vGPUs that are virtual functions, the driver names a type only while another vGPU of it could be
  // created. For mediated devices it always names them, as long as it answers.
  using TypeNames = std::map<std::string, std::string>;  // number -> name
  using Gpu = std::pair<vfio::PciAddress, std::string>;  // address and model
  std::map<Gpu, TypeNames> type_names_;
  std::map<Gpu, std::vector<mdev::VgpuDevice>> known_;  // at the last complete read
  std::set<std::string> unread_;                        // of those, the vGPUs that were restored from then
};

}  // namespace ferry::plugin
