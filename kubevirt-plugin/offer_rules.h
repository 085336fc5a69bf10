// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// What is offered to the kubelet, and under which names. A value: another vendor's accelerators are other
/// rules, not other code. By default nothing is an accelerator.
struct OfferRules {
  /// The functions that users ask for. Their IOMMU groups go with them.
  AcceleratorRules accelerators = {};
  /// The part of every resource name before the "/": "nvidia.com".
  std::string domain = {};
  /// Also offer the same vendors' other functions (a GPU's audio, USB) as resources of their own. They move
  /// with their GPU either way, and share its IOMMU group.
  bool companions = false;
  /// Offer to KubeVirt, under the names of NVIDIA's plugin for it save for `names`.
  bool kubevirt = true;
  NameRules names = {};
  /// Offer to Kata too, or alone. Where both are offered one device, its group goes to the first pod.
  bool kata = false;
  KataRules kata_names = {};
};

}  // namespace ferry
