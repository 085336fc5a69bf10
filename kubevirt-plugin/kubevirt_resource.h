// SPDX-License-Identifier: Apache-2.0
// What KubeVirt must be told of a node's resources: the part of its custom resource that permits them.
// ABI: kubevirt.io/v1 KubeVirt, spec.configuration.permittedHostDevices (KubeVirt v1.9.0).
#pragma once

#include <string>
#include <vector>

#include "common/host_fs.h"
#include "common/result.h"
#include "kubevirt-plugin/offer_assembly.h"

namespace ferry {

/// One entry of either list.
struct PermittedDevice {
  std::string selector;  ///< "10DE:2330" of a PCI device, the type's name of a mediated one
  std::string resource;
  auto operator<=>(const PermittedDevice&) const = default;
};

struct PermittedHostDevices {
  /// Whole GPUs and their companions, and vGPUs that are virtual functions.
  std::vector<PermittedDevice> pci;
  std::vector<PermittedDevice> mediated;
};

/// Each selector and resource of `offer` once, in order; what is offered to Kata alone is left out. Errors:
/// the IDs of a virtual function cannot be read.
Result<PermittedHostDevices> permitted_host_devices(const HostFs& host, const Offer& offer);

/// A KubeVirt object with nothing else in it, as YAML to merge into the one that is there: each resource is
/// somebody else's (externalResourceProvider), or KubeVirt would offer it too, and remove mediated devices.
std::string kubevirt_resource(const PermittedHostDevices& devices);

}  // namespace ferry
