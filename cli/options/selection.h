// SPDX-License-Identifier: Apache-2.0
// Selects accelerators by the command line's options.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/session.h"
#include "common/result.h"
#include "kubevirt-plugin/discovery/device_names.h"
#include "mdev/vgpu_inventory.h"
#include "vfio/bind/rebind_apply.h"
#include "vfio/pci/inventory.h"

namespace ferry::cli {

/// Values as given. An accelerator must meet each option that has values, by any one of them.
struct FilterOptions {
  std::vector<std::string> vendors;     ///< "10de", "0x10de", or a name of named_vendors()
  std::vector<std::string> classes;     ///< "0302", "030200", or a word of named_classes()
  std::vector<std::string> models;      ///< glob(7) on the model's name or on "10de:2330", letter case aside
  std::vector<std::string> numa_nodes;  ///< "0"
};

struct SelectionOptions {
  bool all = false;
  /// PCI addresses. A companion function stands for its accelerator, a VF for itself. For unbind and restore
  /// any function that Ferry has bound stands for itself, too.
  std::vector<std::string> devices;
  std::vector<std::uint32_t> groups;
  std::vector<std::string> with;
  bool force = false;                     ///< see RebindRequest::force
  bool yes = false;                       ///< `all` asks no person
  std::vector<std::string> release = {};  ///< names beside the default, or "none": see release_list()
  FilterOptions filter = {};              ///< alone, or narrowing `all`
};

struct ChosenUnits {
  vfio::RebindRequest request;
  vfio::AcceleratorRules rules;  ///< of this command, with the on-request classes that it names
  std::map<vfio::PciAddress, std::string>
      skipped;  ///< skipped by --all or a filter for vGPUs, with the reason
  std::string nothing =
      {};  ///< "there are no GPUs on this host"; empty: there are some, or a command names one
};

/// A GPU of AMD or Intel, which counts where it is named. The displays of management processors and of
/// virtual machines are none. nullptr: the host has no such GPU.
const vfio::PciFunction* gpu_of_another_vendor(const vfio::Inventory& inventory,
                                               const vfio::AcceleratorRules& rules);

/// "0000:c5:00.0 (GPU, 1002:1900) counts where it is named", of gpu_of_another_vendor(); empty: there is
/// none.
std::string counted_by_name(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules);

/// The sentence about a host on which no function counts: "there are no GPUs on this host".
std::string no_gpus(const vfio::Inventory& inventory, const vfio::AcceleratorRules& rules);

/// `rules` with the on-request classes that --class names and the vendors that --vendor names.
vfio::AcceleratorRules rules_asked_by(const FilterOptions& options, vfio::AcceleratorRules rules);

/// `vgpus`: those by rules_asked_by(). Selects exactly the named accelerators, or with --all or a filter all
/// that fit it and the direction. To vfio these are all but those that carry or offer vGPUs. Back, these are
/// all on a vfio driver or half-way by `record`. Errc::usage or not_found name the fault.
Result<ChosenUnits> select(const SelectionOptions& options, const vfio::Inventory& inventory,
                           const vfio::AcceleratorRules& rules, const mdev::VgpuInventory& vgpus,
                           const vfio::UndoJournal& record, plugin::DeviceNames& names,
                           vfio::Direction direction);

/// Selects among the accelerators that Ferry has bound (recorded_accelerators()) those that are named or fit.
/// Without options or with --all alone it selects all. A named one that was not bound is selected and stays
/// as it is. Errors as select().
Result<ChosenUnits> select_recorded(const SelectionOptions& options, const vfio::Inventory& inventory,
                                    const vfio::AcceleratorRules& rules, const vfio::UndoJournal& record,
                                    plugin::DeviceNames& names);

/// The accelerators, by `rules`, with a unit of which Ferry has bound a function; VFs that it has bound; and
/// unfinished().
std::vector<vfio::PciAddress> recorded_accelerators(const vfio::Inventory& inventory,
                                                    const vfio::AcceleratorRules& rules,
                                                    const vfio::UndoJournal& record);

}  // namespace ferry::cli
