// SPDX-License-Identifier: Apache-2.0
// ABI: Documentation/ABI/testing/sysfs-bus-pci, sysfs-kernel-iommu_groups; Documentation/driver-api/vfio.rst.

#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "vfio/bind/rebind_plan.h"
#include "vfio/checks/passthrough_checks.h"

namespace ferry::vfio::checks {
namespace {

Check readable_check(const PciFunction& function) {
  Check check{"function-readable", function.address.text(),
              "ferry writes nothing to a function that it cannot read"};
  if (!function.problem)
    return std::move(check).passed(fmt::format("{} in /sys/bus/pci/devices", function.ids()));
  return std::move(check).failed(
      function.problem->message,
      "run as root; a device that reads all ones is off the bus and comes back with a cold start, if at all");
}

Check in_group_check(const HostFs& host, const Inventory& inventory, const PciFunction& function) {
  Check check{"in-iommu-group", function.address.text(),
              "vfio-pci refuses (EINVAL) a device that no IOMMU handles"};
  const auto link = host.link_name(sysfs_path(function.address) / "iommu_group");
  if (!link) {
    if (!is_gone(link.error())) return std::move(check).unreadable(link.error());
    return std::move(check).failed(fmt::format("there is no {}", path_text(function, "iommu_group")),
                                   inventory.groups.empty()
                                       ? "see iommu-active"
                                       : "another slot: others on this host have a group, so the IOMMU is on "
                                         "and does not cover this one");
  }
  if (!function.iommu_group) {
    return std::move(check).unknown(
        fmt::format("{} leads to '{}'", path_text(function, "iommu_group"), shown(*link)));
  }
  if (inventory.unsafe_noiommu) {
    return std::move(check).unknown(
        fmt::format("group {}; in vfio's mode without an IOMMU it may be one without isolation", *link),
        "see noiommu-mode");
  }
  return std::move(check).passed(fmt::format("group {} in {}", *link, path_text(function, "iommu_group")));
}

Check virtual_functions_check(const PciFunction& function) {
  Check check{"virtual-functions-off", function.address.text(),
              "vfio-pci refuses (EBUSY) a physical function whose virtual functions are enabled, and by then "
              "the old driver is gone"};
  const auto path = sysfs_path(function.address);
  if (function.sriov_totalvfs == 0)
    return std::move(check).passed(fmt::format("/{} offers no SR-IOV", path.string()));
  if (function.sriov_numvfs == 0)
    return std::move(check).passed(fmt::format("/{} has no virtfn*", path.string()));
  return std::move(check).failed(fmt::format("/{} has {} virtual function{} (virtfn*)", path.string(),
                                             function.sriov_numvfs, function.sriov_numvfs == 1 ? "" : "s"),
                                 "leave this GPU to vGPUs, or let its driver disable them: write 0 to "
                                 "sriov_numvfs there when none is in use");
}

Check undecided_group_check(const PciFunction& function) {
  return {.id = "group-moves-whole",
          .subject = function.address.text(),
          .why = "the kernel gives a VM a whole group or nothing of it"};
}

Check rebind_check(const Rebind& rebind, const PciFunction& function) {
  std::vector<std::string> rebinding;
  for (const PciAddress& address : rebind.rebinding()) rebinding.push_back(address.text());
  std::string found =
      fmt::format("/sys/kernel/iommu_groups/{}: {} {}", fmt::join(rebind.groups, ","),
                  fmt::join(rebinding, ", "), rebind.steps.empty() ? "on vfio" : "can be bound");
  for (const std::string& note : rebind.notes) found += "; " + note;
  return undecided_group_check(function).passed(std::move(found));
}

// Applies the plan's own rule: a bind of all accelerators, with no device in use, must not be refused.
std::vector<Check> group_checks(const Inventory& inventory, const AcceleratorRules& rules,
                                const std::vector<PciAddress>& accelerators) {
  std::vector<Check> out;
  // Virtual functions have a check of their own, so this check ignores them.
  Inventory without_vfs = inventory;
  for (auto& entry : without_vfs.functions) entry.second.sriov_numvfs = 0;
  RebindRequest request;
  for (const PciAddress& address : accelerators) {
    const PciFunction& function = *inventory.find(address);
    if (function.iommu_group && inventory.has_iommu()) {
      request.accelerators.push_back(address);
    } else {
      out.push_back(undecided_group_check(function).unknown("without an IOMMU group there is none to judge",
                                                            "see iommu-active and in-iommu-group"));
    }
  }
  // The choice of vfio driver does not decide if a function can be bound, so the driver table stays empty.
  const RebindPlan plan = plan_bind(without_vfs, rules, request, {}, {}, {}, {});
  for (const Rebind& rebind : plan.rebinds)
    for (const PciAddress& address : rebind.devices)
      out.push_back(rebind_check(rebind, *inventory.find(address)));
  for (const Refusal& refusal : plan.refusals) {
    for (const PciAddress& address : refusal.devices) {
      out.push_back(undecided_group_check(*inventory.find(address))
                        .failed(fmt::format("/sys/kernel/iommu_groups/{}: {}", fmt::join(refusal.groups, ","),
                                            fmt::join(refusal.reasons, "; ")),
                                refusal.hint.empty()
                                    ? "see what driver the named device is on, and keep it from loading"
                                    : refusal.hint));
    }
  }
  return out;
}

}  // namespace

std::vector<Check> of_groups(const HostFs& host, const Inventory& inventory, const AcceleratorRules& rules,
                             const std::vector<PciAddress>& accelerators) {
  std::vector<Check> out;
  for (const PciAddress& address : accelerators) {
    const PciFunction& function = *inventory.find(address);
    out.push_back(readable_check(function));
    out.push_back(in_group_check(host, inventory, function));
    out.push_back(virtual_functions_check(function));
  }
  for (Check& check : group_checks(inventory, rules, accelerators)) out.push_back(std::move(check));
  return out;
}

}  // namespace ferry::vfio::checks
