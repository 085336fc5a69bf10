// SPDX-License-Identifier: Apache-2.0
// KubeVirt's rules for VMs with GPUs and vGPUs.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "common/text/text.h"

namespace ferry {

// How KubeVirt's launcher finds the devices of a resource: by a variable that has their PCI addresses, and
// one that has their UUIDs, joined by commas. Source: KubeVirt v1.9.0, ResourceNameToEnvVar in
// pkg/util/util.go, and pkg/virt-launcher/virtwrap/device/hostdevice/addresspool.go.

inline constexpr std::string_view kPciResource = "PCI_RESOURCE";
inline constexpr std::string_view kMdevResource = "MDEV_PCI_RESOURCE";

/// "PCI_RESOURCE_NVIDIA_COM_GH100_H100_SXM5_80GB": the prefix, "_", and the name in upper case with "/" and
/// "." as "_". Two names may have one variable.
inline std::string resource_variable(std::string_view prefix, std::string_view resource) {
  std::string out = std::string(prefix) + "_";
  for (const char c : resource) {
    const char upper = is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
    out += c == '/' || c == '.' ? '_' : upper;
  }
  return out;
}

// GPUs of NVIDIA's Grace CPUs, for which KubeVirt 1.9 and newer has rules of its own for VMs.
// Source: KubeVirt v1.9.0, pkg/util/hardware/grace.go and its admission webhook for VMIs.

inline constexpr std::array<std::string_view, 3> kGraceGpus = {"10de:2342", "10de:2348", "10de:2941"};

/// KubeVirt refuses a VM with such a GPU unless all of these feature gates are on.
inline constexpr std::array<const char*, 3> kGraceGates = {"GraceIOVirtualization", "PCINUMAAwareTopology",
                                                           "IOMMUFD"};

inline constexpr const char* kGraceVm =
    "architecture arm64, machine type virt and cpu.dedicatedCpuPlacement: true";

/// `ids` is vendor and device, "10de:2342", in either letter case.
inline bool is_grace_gpu(std::string_view ids) {
  return std::ranges::find(kGraceGpus, lower(ids)) != kGraceGpus.end();
}

// How KubeVirt decides whether a VM with a vGPU can move to another node: by the list of permittedHostDevices
// that its resource stands in.
// Source: KubeVirt v1.9.0, isMdevGPU in pkg/virt-handler/vm.go, feature gate VGPULiveMigration.

/// A resource name that stands for mediated devices and for PCI functions.
inline constexpr const char* kOneNameForTwoKinds =
    "with its feature gate VGPULiveMigration KubeVirt takes every VM with it for migratable, and a VM on a "
    "virtual function arrives without its GPU";

inline constexpr const char* kOneNameForTwoKindsCure =
    "give the vGPUs of one kind a name of their own: `ferry plugin --alias MODEL=NAME` on the nodes that "
    "have them";

}  // namespace ferry
