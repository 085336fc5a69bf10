// SPDX-License-Identifier: Apache-2.0
#include "kubevirt-plugin/kubevirt_resource.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace ferry::plugin {
namespace {

std::string selector_of(std::string ids) {
  std::ranges::transform(ids, ids.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return ids;
}

Result<std::string> read_ids(const HostFs& host, const std::string& address) {
  std::string ids;
  for (const char* const name : {"vendor", "device"}) {
    const auto text = host.read_attribute(std::filesystem::path("sys/bus/pci/devices") / address / name);
    if (!text) return fail(text.error());
    if (!ids.empty()) ids += ':';
    ids += text->starts_with("0x") ? text->substr(2) : *text;
  }
  return ids;
}

std::string list_of(std::string_view key, std::string_view selector_key,
                    const std::vector<PermittedDevice>& devices) {
  if (devices.empty()) return {};
  std::string out = fmt::format("      {}:\n", key);
  for (const auto& device : devices) {
    out +=
        fmt::format("      - {}: \"{}\"\n        resourceName: {}\n        externalResourceProvider: true\n",
                    selector_key, device.selector, device.resource);
  }
  return out;
}

}  // namespace

Result<PermittedHostDevices> permitted_host_devices(const HostFs& host, const Offer& offer) {
  std::set<PermittedDevice> pci;
  std::set<PermittedDevice> mediated;
  for (const auto& resource : offer.resources) {
    const std::string& name = resource.name.text();
    for (const auto& device : resource.devices) {
      switch (device.kind) {
        case DeviceKind::pci_function:
          pci.insert({selector_of(device.model), name});
          for (const auto& companion : device.companions)
            pci.insert({selector_of(companion.model), companion.resource});
          break;
        case DeviceKind::mediated_device:
          mediated.insert({device.model, name});
          break;
        case DeviceKind::vendor_vgpu: {
          auto ids = read_ids(host, device.id);
          if (!ids) return fail(std::move(ids).error());
          pci.insert({selector_of(std::move(*ids)), name});
          break;
        }
        case DeviceKind::kata_function:
          break;
      }
    }
  }
  return PermittedHostDevices{.pci = {pci.begin(), pci.end()},
                              .mediated = {mediated.begin(), mediated.end()}};
}

std::string kubevirt_resource(const PermittedHostDevices& devices) {
  std::string lists = list_of("pciHostDevices", "pciVendorSelector", devices.pci) +
                      list_of("mediatedDevices", "mdevNameSelector", devices.mediated);
  if (lists.empty()) lists = "      {}\n";
  return "apiVersion: kubevirt.io/v1\n"
         "kind: KubeVirt\n"
         "metadata:\n"
         "  name: kubevirt\n"
         "  namespace: kubevirt\n"
         "spec:\n"
         "  configuration:\n"
         "    permittedHostDevices:\n" +
         lists;
}

}  // namespace ferry::plugin
