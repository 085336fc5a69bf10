// SPDX-License-Identifier: Apache-2.0
#include "host/fabric_use_probe.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/counted.h"
#include "host/process_facts.h"

namespace ferry {
namespace {

bool is_switch(const PciFunction& function, const AcceleratorRules& rules) {
  return rules.on_request.contains(function.pci_class()) && rules.vendors.contains(function.vendor) &&
         !function.is_bridge();
}

bool is_switch_of_the_host(const PciFunction& function, const AcceleratorRules& rules) {
  return is_switch(function, rules) && function.driver && !on_vfio_driver(function);
}

std::size_t count(const Inventory& inventory, const AcceleratorRules& rules,
                  bool (*is_one)(const PciFunction&, const AcceleratorRules&)) {
  return static_cast<std::size_t>(std::ranges::count_if(
      inventory.functions, [&](const auto& entry) { return is_one(entry.second, rules); }));
}

// proc/PID/comm holds the first 15 characters of the name.
std::optional<int> fabric_manager(const HostFs& host) {
  for (const std::string& name : host.list("proc").value_or(std::vector<std::string>{})) {
    const auto pid = pid_of(name);
    if (!pid) continue;
    if (host.read_attribute(std::filesystem::path("proc") / name / "comm").value_or("") == "nv-fabricmanage")
      return pid;
  }
  return std::nullopt;
}

}  // namespace

Result<UseReport> FabricUseProbe::look(std::span<const UseQuestion> questions) {
  UseReport report;
  const auto inventory = scan(*host_);
  if (!inventory) return report;  // a host without a PCI bus has no fabric
  const std::size_t switches = count(*inventory, rules_, is_switch_of_the_host);
  // If PCI shows switches and none has a host driver, the fabric belongs to a service VM. From B200 on,
  // boards have switches that PCI does not show. A running manager proves such a fabric, since it exits where
  // it finds none.
  if (switches == 0 && count(*inventory, rules_, is_switch) > 0) return report;
  const std::string fabric =
      fmt::format("the NVLink fabric ({})", switches > 0 ? counted(switches, "switch", "switches")
                                                         : "whose switches are no PCI functions");
  const auto pid = fabric_manager(*host_);
  if (!pid) return report;
  for (const UseQuestion& question : questions) {
    const auto address = PciAddress::parse(question.device);
    const PciFunction* function = address ? inventory->find(*address) : nullptr;
    if (function == nullptr || on_vfio_driver(*function)) continue;
    if (!rules_.match(*function) && !is_switch_of_the_host(*function, rules_)) continue;
    report.holders[question.device].push_back({.kind = Holder::Kind::fabric,
                                               .name = "nv-fabricmanager",
                                               .pid = pid,
                                               .what = fabric,
                                               .pod_uid = {}});
  }
  return report;
}

}  // namespace ferry
