// SPDX-License-Identifier: Apache-2.0
#include "host/fabric_use_probe.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "common/counted.h"

namespace ferry {
namespace {

bool is_switch_of_the_host(const PciFunction& function, const AcceleratorRules& rules) {
  return rules.on_request.contains(function.pci_class()) && rules.vendors.contains(function.vendor) &&
         !function.is_bridge() && function.driver && !on_vfio_driver(function);
}

std::size_t switches_on_the_host(const Inventory& inventory, const AcceleratorRules& rules) {
  return static_cast<std::size_t>(std::ranges::count_if(
      inventory.functions, [&](const auto& entry) { return is_switch_of_the_host(entry.second, rules); }));
}

// proc/PID/comm holds the first 15 characters of the name.
std::optional<int> fabric_manager(const HostFs& host) {
  for (const std::string& name : host.list("proc").value_or(std::vector<std::string>{})) {
    int pid = 0;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data(), end, pid).ptr != end) continue;
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
  const std::size_t switches = switches_on_the_host(*inventory, rules_);
  if (switches == 0) return report;
  const auto pid = fabric_manager(*host_);
  if (!pid) return report;
  for (const UseQuestion& question : questions) {
    const auto address = PciAddress::parse(question.device);
    const PciFunction* function = address ? inventory->find(*address) : nullptr;
    if (function == nullptr || on_vfio_driver(*function)) continue;
    if (!rules_.match(*function) && !is_switch_of_the_host(*function, rules_)) continue;
    report.holders[question.device].push_back(
        {.kind = Holder::Kind::fabric,
         .name = "nv-fabricmanager",
         .pid = pid,
         .what = fmt::format("the NVLink fabric ({})", counted(switches, "switch", "switches")),
         .pod_uid = {}});
  }
  return report;
}

}  // namespace ferry
