// SPDX-License-Identifier: Apache-2.0
// What a node is, as a policy: the way back from a host to a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"
#include "mdev/gpu_management.h"
#include "policy/policy.h"
#include "vfio/inventory.h"

namespace ferry {

/// What NVML says of GPUs, or why it says nothing.
using ManagedGpus = std::map<PciAddress, Result<ManagedGpu>>;

/// Whether NVML is to be asked about a GPU before it is exported: whether it is ready for vGPUs of several
/// sizes only NVML says, where all that it carries have one.
bool asks_library_to_export(const VgpuGpu& gpu);

struct ExportedPolicy {
  Policy policy;
  std::vector<std::string> notes;  ///< what of the node it does not say, each as a sentence
};

/// The policy that a node agrees with as it is: judge_policy() finds no difference, and applying it writes
/// nothing. One item per set of GPUs that are the same, by their numbers; every GPU is in one. vGPUs without
/// parameters have none in it (so that they stay as they are), and placement is left to the driver. What may
/// be released no host shows: the default.
///
/// Errors: those of export_profile(); or Errc::unsupported: a card is half on vfio, which no policy can say.
Result<ExportedPolicy> export_policy(const Inventory& inventory, const VgpuInventory& vgpus,
                                     const std::string& name, const ManagedGpus& managed = {});

}  // namespace ferry
