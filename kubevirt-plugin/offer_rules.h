// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kubevirt-plugin/naming.h"
#include "vfio/inventory.h"

namespace ferry {

/// What Kata is offered, as NVIDIA's plugin for it does: IDs are numbers, and each has a CDI name.
struct KataRules {
  /// The name part for all accelerators. Empty: one for each model.
  std::string gpu_alias = "pgpu";
  /// For those that count on request only (NVSwitches).
  std::string switch_alias = "nvswitch";
};

/// Whether KubeVirt can be asked for the other functions of the accelerators' vendors: a GPU's audio, its
/// USB. Those of a GPU's IOMMU group go to the VM's pod with it in any case.
enum class Companions {
  unasked,
  /// As devices of their own resources. One group goes to one pod, and a GPU and its audio never to the same.
  devices,
  /// As places (OfferedDevice::companions): a pod that asks for one beside a GPU gets that GPU's own. Those
  /// that share no group with a GPU are not offered.
  places,
};

/// What is offered to the kubelet, and under which names. A value: another vendor's accelerators are other
/// rules, not other code. By default nothing is an accelerator.
struct OfferRules {
  /// The functions that users ask for. Their IOMMU groups go with them.
  AcceleratorRules accelerators = {};
  /// The part of every resource name before the "/": "nvidia.com".
  std::string domain = {};
  /// The same for other vendors' devices. A vendor that is missing here gets its domain from pci.ids.
  std::map<std::uint16_t, std::string> domains = {};
  Companions companions = Companions::unasked;
  /// Offer to KubeVirt, under the names of NVIDIA's plugin for it save for `names`.
  bool kubevirt = true;
  NameRules names = {};
  /// Offer to Kata too, or alone. Where both are offered one device, its group goes to the first pod.
  bool kata = false;
  KataRules kata_names = {};
};

}  // namespace ferry
