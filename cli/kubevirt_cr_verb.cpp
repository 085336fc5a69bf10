// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/document.h"
#include "cli/verbs.h"
#include "kubevirt-plugin/kubevirt_resource.h"
#include "kubevirt-plugin/scanner.h"
#include "policy/accelerators.h"
#include "vgpu-dm/type_table.h"

namespace ferry {
namespace {

using nlohmann::json;

json to_json(const char* selector, const std::vector<PermittedDevice>& devices) {
  auto list = json::array();
  for (const auto& device : devices) {
    list.push_back(
        {{selector, device.selector}, {"resourceName", device.resource}, {"externalResourceProvider", true}});
  }
  return list;
}

// Kubernetes' own keys.
json object_of(const PermittedHostDevices& devices) {
  return {{"apiVersion", "kubevirt.io/v1"},
          {"kind", "KubeVirt"},
          {"metadata", {{"name", "kubevirt"}, {"namespace", "kubevirt"}}},
          {"spec",
           {{"configuration",
             {{"permittedHostDevices",
               {{"pciHostDevices", to_json("pciVendorSelector", devices.pci)},
                {"mediatedDevices", to_json("mdevNameSelector", devices.mediated)}}}}}}}};
}

}  // namespace

ExitStatus kubevirt_cr_verb(const Session& session) {
  const OfferRules rules{.accelerators = session.rules, .domain = std::string(kResourceDomain)};
  const auto offer = Scanner(*session.host, rules, scan_known_vgpus).scan();
  if (!offer) return complain(offer.error());
  for (const auto& device : offer->not_offered)
    fmt::print(stderr, "{} is left out: {}\n", device.id, device.reason);
  const auto devices = permitted_host_devices(*session.host, *offer);
  if (!devices) return complain(devices.error());
  print(session, object_of(*devices), kubevirt_resource(*devices));
  fmt::print(stderr,
             "This is one node's part: the lists of all nodes belong into the one object of the cluster.\n"
             "VMs that ask under hostDevices need KubeVirt's feature gate HostDevices.\n");
  return ExitStatus::done;
}

}  // namespace ferry
