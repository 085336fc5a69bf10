// SPDX-License-Identifier: Apache-2.0
// How KubeVirt decides whether a VM with a vGPU can move to another node: by the list of permittedHostDevices
// that its resource stands in.
// Source: KubeVirt v1.9.0, isMdevGPU in pkg/virt-handler/vm.go, feature gate VGPULiveMigration.
#pragma once

namespace ferry {

/// A resource name that stands for mediated devices and for PCI functions.
inline constexpr const char* kOneNameForTwoKinds =
    "with its feature gate VGPULiveMigration KubeVirt takes every VM with it for migratable, and a VM on a "
    "virtual function arrives without its GPU";

inline constexpr const char* kOneNameForTwoKindsCure =
    "give the vGPUs of one kind a name of their own: `ferry plugin --alias MODEL=NAME` on the nodes that "
    "have "
    "them";

}  // namespace ferry
