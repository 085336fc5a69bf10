// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/document.h"
#include "cli/verbs.h"
#include "kubevirt-plugin/kubevirt_resource.h"
#include "kubevirt-plugin/scanner.h"
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

// Kubernetes' own keys. A list that is given replaces the one that is there: an empty one would take away
// what other nodes offer.
json object_of(const PermittedHostDevices& devices) {
  json permitted = json::object();
  if (!devices.pci.empty()) permitted["pciHostDevices"] = to_json("pciVendorSelector", devices.pci);
  if (!devices.mediated.empty()) permitted["mediatedDevices"] = to_json("mdevNameSelector", devices.mediated);
  return {{"apiVersion", "kubevirt.io/v1"},
          {"kind", "KubeVirt"},
          {"metadata", {{"name", "kubevirt"}, {"namespace", "kubevirt"}}},
          {"spec", {{"configuration", {{"permittedHostDevices", permitted}}}}}};
}

}  // namespace

ExitStatus kubevirt_cr_verb(const Session& session, const NamingOptions& naming) {
  const auto rules = offer_rules(session, naming);
  if (!rules) return complain(rules.error());
  const auto offer = Scanner(*session.host, *rules, scan_known_vgpus).scan();
  if (!offer) return complain(offer.error());
  for (const auto& device : offer->not_offered)
    fmt::print(stderr, "{} is left out: {}\n", device.id, device.reason);
  const auto devices = permitted_host_devices(*session.host, *offer);
  if (!devices) return complain(devices.error());
  print(session, object_of(*devices), kubevirt_resource(*devices));
  fmt::print(
      stderr,
      "This is one node's part: the lists of all nodes belong into the one object of the cluster.\n"
      "Add the entries to the lists that are there; `kubectl apply` or a merge patch of this alone would\n"
      "replace them, and take away what other nodes, or others than ferry, have in them.\n"
      "VMs that ask under hostDevices need KubeVirt's feature gate HostDevices.\n");
  return ExitStatus::done;
}

}  // namespace ferry
