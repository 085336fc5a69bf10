// SPDX-License-Identifier: Apache-2.0
// The part of KubeVirt's custom resource that permits a node's resources.
// ABI: kubevirt.io/v1 KubeVirt, spec.configuration.permittedHostDevices (KubeVirt v1.9.0).
#pragma once

#include <string>
#include <vector>

#include "common/check.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_rules.h"
#include "kubevirt-plugin/discovery/scanner.h"

namespace ferry::plugin {

/// An entry of either list.
struct PermittedDevice {
  std::string selector;  ///< "10DE:2330" for a PCI device, the type's name for a mediated device
  std::string resource;
  auto operator<=>(const PermittedDevice&) const = default;
};

struct PermittedHostDevices {
  /// Whole GPUs and their companions, and vGPUs that are virtual functions.
  std::vector<PermittedDevice> pci;
  std::vector<PermittedDevice> mediated;
};

/// Each selector and resource of `scan` once, sorted; resources for Kata alone are left out. Errors: the IDs
/// of a virtual function cannot be read.
Result<PermittedHostDevices> permitted_host_devices(const HostFs& host, const ResourceSet& scan);

/// A KubeVirt object with only this part, as YAML to merge into the existing object. Each resource is marked
/// externalResourceProvider; otherwise KubeVirt would advertise it too, and remove mediated devices.
std::string kubevirt_resource(const PermittedHostDevices& devices);

// Checks if this host can advertise its GPUs and vGPUs to KubeVirt, and which change is needed if not.
//
// The checks write nothing and cover the present devices. Other checks say if more could be advertised.

/// The checks of the host, then those of each device that is not advertised. Check IDs are stable; their
/// order is not. `read_vgpus`: the plugin's function.
std::vector<Check> kubevirt_checks(const HostFs& host, const ResourceRules& rules,
                                   ReadVgpus read_vgpus = mdev::scan_vgpus);

}  // namespace ferry::plugin
