// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "vfio/pci/inventory.h"

namespace ferry::plugin {

/// Kata's resources, like those of NVIDIA's plugin for Kata: IDs are numbers, and each has a CDI name.
struct KataRules {
  /// The name part for all accelerators. Empty: each model has its own.
  std::string gpu_alias = "pgpu";
  /// The name part for accelerators that count on request only (NVSwitches).
  std::string switch_alias = "nvswitch";
};

/// The way in which a pod of KubeVirt can ask for other functions of the accelerators' vendors, such as a
/// GPU's audio and USB. The functions of a GPU's IOMMU group go to the GPU's pod in any case.
enum class Companions {
  unasked,
  /// Devices of their own resources. A group goes to one pod, so no pod is allocated a GPU and its audio.
  devices,
  /// Places (ScannedDevice::companions): a pod that asks for one besides a GPU gets that GPU's companion.
  /// Functions that share no group with a GPU are not advertised.
  places,
};

/// The devices that are advertised, and their resource names. A value, so that another vendor's accelerators
/// need other rules and no other code. By default nothing is an accelerator.
struct ResourceRules {
  /// The functions that users ask for. The rest of their IOMMU groups goes with them.
  vfio::AcceleratorRules accelerators = {};
  /// The domain before the "/" of every resource name: "nvidia.com".
  std::string domain = {};
  /// The domains of other vendors' devices. A vendor that is missing here gets its domain from pci.ids.
  std::map<std::uint16_t, std::string> domains = {};
  Companions companions = Companions::unasked;
  /// Advertise to KubeVirt, under the names of NVIDIA's KubeVirt plugin except for `names`.
  bool kubevirt = true;
  NameRules names = {};
  /// Advertise to Kata, also or only. If both get the same device, its group goes to the first pod.
  bool kata = false;
  KataRules kata_names = {};
};

}  // namespace ferry::plugin
