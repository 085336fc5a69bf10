// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ranges>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "vfio/checks/passthrough_checks.h"

namespace ferry::vfio::checks {
namespace {

/// The facts of a check whose rules have no finding; empty: the check is left out.
std::string fine(std::string_view check, const Inventory& inventory, const AcceleratorRules& rules,
                 const PciFunction& function) {
  const std::string path = "/" + sysfs_path(function.address).string();
  const std::string group = fmt::format("/sys/kernel/iommu_groups/{}", function.iommu_group.value_or(0));
  if (check == "function-readable") return fmt::format("{} in /sys/bus/pci/devices", function.ids());
  if (check == "in-iommu-group")
    return fmt::format("group {} in {}/iommu_group", function.iommu_group.value_or(0), path);
  if (check == "reserved-regions") return fmt::format("{}/reserved_regions has no direct region", group);
  if (check == "group-moves-whole") {
    std::vector<std::string> moved;
    std::string found;
    for (const PciAddress& address : inventory.group_of(function)) {
      const PciFunction& member = *inventory.find(address);
      if (member.is_bridge()) continue;
      if (address == function.address || rules.match(member) || is_companion(function, member))
        moved.push_back(address.text());
      else
        found += fmt::format("; {} shares the group and is left alone", describe(member));
    }
    return fmt::format("{}: {} {}{}", group, fmt::join(moved, ", "),
                       on_vfio_driver(function) ? "on vfio" : "can be bound", found);
  }
  if (check == "group-viable") return group + "/devices: every driver leaves the group to a VM";
  if (check == "firmware-framebuffer") return "/proc/iomem has no firmware framebuffer inside its BARs";
  if (check == "vfio-nodes") return "no member of its group on vfio lacks a node in /dev/vfio";
  if (check == "boot-display") return fmt::format("{}/boot_vga is not 1", path);
  if (check == "virtual-functions-off")
    return function.sriov_numvfs == 0 ? fmt::format("{} has no virtfn*", path)
                                      : fmt::format("{} is on vfio already, with {}", function.address.text(),
                                                    counted(function.sriov_numvfs, "virtual function"));
  if (check == "stuck-write") return "/run/ferry/stuck-writes has no write to its group";
  if (check == "fatal-errors") return fmt::format("{}/aer_dev_fatal: none since it was bound", path);
  if (check == "switch-management") return group + "/devices has no function that manages NVSwitches";
  return {};
}

}  // namespace

std::vector<Check> of_rules(const Inventory& inventory, const AcceleratorRules& rules,
                            const PciFunction& function, const std::vector<Finding>& findings) {
  const bool has_group = function.iommu_group && inventory.has_iommu();
  std::vector<Check> out;
  std::set<std::string_view> seen;
  for (const Rule& one : vfio::rules()) {
    if (one.check.empty() || !seen.insert(one.check).second) continue;
    Check check{
        .id = std::string(one.check), .subject = function.address.text(), .why = std::string(one.why)};
    std::vector<const Finding*> of_it;
    for (const Finding& finding : findings)
      if (rule(finding.rule).check == one.check) of_it.push_back(&finding);
    const bool of_group = one.check == "in-iommu-group" || one.check == "group-moves-whole" ||
                          one.check == "group-viable" || one.check == "reserved-regions";
    if (of_it.empty()) {
      std::string facts = fine(one.check, inventory, rules, function);
      if (of_group && !has_group)
        out.push_back(std::move(check).unknown("without an IOMMU group there is none to judge",
                                               "see iommu-active and noiommu-mode"));
      else if (!facts.empty())
        out.push_back(std::move(check).passed(std::move(facts)));
      continue;
    }

    // The first finding is the gravest. Its advice is the first one that a finding of its kind has.
    const Finding& gravest = *of_it.front();
    std::vector<std::string> texts;
    std::string advice;
    for (const Finding* finding : of_it | std::views::reverse)
      if (finding->answer == gravest.answer && !finding->advice.empty()) advice = finding->advice;
    for (const Finding* finding : of_it)
      if (finding->answer == gravest.answer && std::ranges::find(texts, finding->text) == texts.end())
        texts.push_back(finding->text);
    std::string found = fmt::format("{}", fmt::join(texts, "; "));
    if (gravest.answer == Answer::not_looked)
      out.push_back(std::move(check).unknown(std::move(found), advice));
    else
      out.push_back(rule(gravest.rule).warns ? std::move(check).warned(std::move(found), advice)
                                             : std::move(check).failed(std::move(found), advice));
  }
  return out;
}

}  // namespace ferry::vfio::checks
