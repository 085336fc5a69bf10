// SPDX-License-Identifier: Apache-2.0
// The part of KubeVirt's custom resource, or of HyperConverged's, that permits a node's resources.
// ABI: kubevirt.io/v1 KubeVirt, spec.configuration.permittedHostDevices (KubeVirt v1.9.0); hco.kubevirt.io
// HyperConverged (v1.18.1), v1 spec.virtualization.permittedHostDevices, v1beta1 spec.permittedHostDevices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/check.h"
#include "common/result.h"
#include "hostfs/host_fs.h"
#include "kubevirt-plugin/discovery/resource_assembly.h"
#include "kubevirt-plugin/discovery/resource_class.h"
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

/// The resources of the GPUs that are for claims, under the names that the plugin would give them.
struct ClaimableResources {
  PermittedHostDevices permitted = {};
  std::vector<ResourceClass> classes = {};
  std::vector<NotAdvertised> not_named = {};  ///< GPUs and types for which there is no legal name
};

/// Each entry once, sorted. Errors: kClaimableGpusFile cannot be read; without it there are none.
Result<ClaimableResources> claimable_resources(const HostFs& host, const ResourceRules& rules);

/// An object of the cluster that permits devices, with its own words for the same lists.
struct PermittingObject {
  std::string api_version;
  std::string kind;
  std::string name;
  std::string space;
  std::vector<std::string> path;  ///< keys from `spec` to the lists
  std::string pci_selector;       ///< the key of an entry with a PCI ID
};

/// The KubeVirt object, or with a version of its API the HyperConverged object: "v1" or "v1beta1".
PermittingObject permitting_object(std::string_view hyperconverged_version);

/// An object with only this part, as YAML to merge into the existing object. Each resource is marked
/// externalResourceProvider; otherwise KubeVirt would advertise it too, and remove mediated devices.
std::string kubevirt_resource(const PermittedHostDevices& devices, const PermittingObject& object);

/// A check of `ferry doctor --for dra`: whether the plugin advertises a name that GPUs for claims have, too.
Check claimable_names_check(const HostFs& host, const ResourceRules& rules);

// Checks if this host can advertise its GPUs and vGPUs to KubeVirt, and which change is needed if not.
//
// The checks write nothing and cover the present devices. Other checks say if more could be advertised.

/// The checks of the host, then those of each device that is not advertised. Check IDs are stable; their
/// order is not. `read_vgpus`: the plugin's function.
std::vector<Check> kubevirt_checks(const HostFs& host, const ResourceRules& rules,
                                   ReadVgpus read_vgpus = mdev::scan_vgpus);

}  // namespace ferry::plugin
