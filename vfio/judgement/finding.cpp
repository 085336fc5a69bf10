// SPDX-License-Identifier: Apache-2.0
#include "vfio/judgement/finding.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "common/text/words.h"
#include "vfio/pci/inventory.h"

namespace ferry::vfio {
namespace {

using enum Blocks;

constexpr Blocks kAll = bind | advertise | allocate | prepare | ready;
constexpr Blocks kOfVms = advertise | allocate | prepare | ready;

constexpr std::array kRules = {
    Rule{.id = RuleId::off_the_bus,
         .name = "off-the-bus",
         .check = "function-readable",
         .word = "unreadable",
         .why = "a device that does not answer works nowhere, and may look healthy in sysfs",
         .blocks = kAll,
         .blocks_unlooked = bind | allocate | prepare,
         .of_the_device = true,
         .of_the_kernel = true},
    Rule{.id = RuleId::unreadable,
         .name = "unreadable",
         .check = "function-readable",
         .word = "unreadable",
         .why = "ferry writes nothing to a function that it cannot read",
         .blocks = kAll,
         .of_the_device = true,
         .of_the_kernel = true},
    Rule{.id = RuleId::power_error,
         .name = "power-error",
         .check = "power-state",
         .word = "power error",
         .why = "a device without power does not answer, and some come back broken",
         .blocks = kAll,
         .of_the_device = true,
         .of_the_kernel = true},
    Rule{.id = RuleId::stuck_write,
         .name = "stuck-write",
         .check = "stuck-write",
         .word = "stuck",
         .why = "a further write to the device would hang, too",
         .blocks = bind | advertise | allocate | prepare,
         .of_the_device = true},
    Rule{.id = RuleId::iommu_off,
         .name = "iommu-off",
         .check = "in-iommu-group",
         .word = "not viable",
         .why = "without an IOMMU a device reaches all memory of the host, and no VM gets one",
         .blocks = kAll,
         .of_the_kernel = true},
    Rule{.id = RuleId::noiommu_mode,
         .name = "noiommu-mode",
         .check = "in-iommu-group",
         .word = "not viable",
         .why = "vfio's mode without an IOMMU isolates nothing",
         .blocks = kAll,
         .of_the_kernel = true},
    Rule{.id = RuleId::no_group,
         .name = "no-group",
         .check = "in-iommu-group",
         .word = "no group",
         .why = "vfio-pci refuses (EINVAL) a device that no IOMMU handles",
         .blocks = kAll,
         .of_the_kernel = true},
    Rule{.id = RuleId::switch_management,
         .name = "switch-management",
         .check = "switch-management",
         .word = "not viable",
         .why = "a reset of this function resets the NVSwitches of all tenants",
         .blocks = kAll,
         .blocks_unlooked = bind | prepare},
    Rule{.id = RuleId::reserved_region,
         .name = "reserved-region",
         .check = "reserved-regions",
         .word = "not viable",
         .why = "memory that the firmware keeps for a device lets the kernel give its group to no VM",
         .blocks = kAll,
         .of_the_kernel = true},
    Rule{.id = RuleId::group_not_viable,
         .name = "group-not-viable",
         .check = "group-viable",
         .word = "not viable",
         .why = "a VM gets a group only once no member has a driver of the host",
         .blocks = advertise | allocate | ready},
    Rule{.id = RuleId::foreign_driver,
         .name = "foreign-driver",
         .check = "group-moves-whole",
         .word = "not viable",
         .why = "the kernel gives a VM a whole group or nothing of it",
         .blocks = kAll},
    Rule{.id = RuleId::foreign_user,
         .name = "foreign-user",
         .check = "group-moves-whole",
         .word = "not viable",
         .why = "a VM with another function of the group may reset a function that the host uses",
         .blocks = bind | prepare},
    Rule{.id = RuleId::framebuffer_on_vfio,
         .name = "framebuffer-on-vfio",
         .check = "firmware-framebuffer",
         .word = "blocked",
         .why = "a framebuffer's memory cannot be reserved for a VM",
         .blocks = kOfVms},
    Rule{.id = RuleId::nodes_missing,
         .name = "nodes-missing",
         .check = "vfio-nodes",
         .word = "blocked",
         .why = "a VM's process opens the nodes of the group first",
         .blocks = kOfVms},
    Rule{.id = RuleId::fatal_errors,
         .name = "fatal-errors",
         .check = "fatal-errors",
         .word = "unhealthy",
         .why = "after a fatal PCIe error the device may answer with wrong data",
         .blocks = kOfVms,
         .of_the_device = true},
    Rule{.id = RuleId::interrupted_mode_change,
         .name = "interrupted-mode-change",
         .check = "mode-change",
         .word = "blocked",
         .why = "the reset at a VM's start may change its confidential mode",
         .blocks = advertise | allocate | prepare},
    Rule{.id = RuleId::not_sanitized,
         .name = "not-sanitized",
         .check = "sanitized",
         .word = "not sanitized",
         .why = "a VM must not find the memory of the VM before it",
         .blocks = advertise | allocate | prepare},
    Rule{.id = RuleId::fabric_switch,
         .name = "fabric-switch",
         .check = "",
         .word = "blocked",
         .why = "a running fabric manager serves this NVSwitch for several VMs, so no single one gets it",
         .blocks = kAll},
    Rule{.id = RuleId::unfinished_card,
         .name = "unfinished-card",
         .check = "group-viable",
         .word = "not whole",
         .why = "a function of the card that stays with the host may be in use there while the VM runs",
         .blocks = ready},
    Rule{.id = RuleId::boot_display,
         .name = "boot-display",
         .check = "boot-display",
         .word = "in use",
         .why = "the host's screen goes dark with the boot display, whose ROM may be a shadowed copy",
         .blocks = bind | prepare,
         .of_a_change = true,
         .warns = true},
    Rule{.id = RuleId::firmware_framebuffer,
         .name = "firmware-framebuffer",
         .check = "firmware-framebuffer",
         .word = "in use",
         .why = "a framebuffer's memory cannot be reserved for a VM",
         .blocks = bind | prepare,
         .of_a_change = true,
         .warns = true},
    Rule{.id = RuleId::in_use,
         .name = "in-use",
         .check = "",
         .word = "in use",
         .why = "a device is taken from no VM, container or process",
         .blocks = bind | prepare,
         .blocks_unlooked = bind | prepare,
         .of_a_change = true,
         .passes = true},
    Rule{.id = RuleId::vgpus_present,
         .name = "vgpus-present",
         .check = "",
         .word = "in use",
         .why = "a GPU that carries vGPUs stays on its driver",
         .blocks = bind | prepare,
         .of_a_change = true,
         .passes = true},
    Rule{.id = RuleId::functions_enabled,
         .name = "functions-enabled",
         .check = "virtual-functions-off",
         .word = "not viable",
         .why = "vfio-pci refuses (EBUSY) a physical function that has virtual functions",
         .blocks = bind | prepare,
         .of_a_change = true,
         .passes = true},
    Rule{.id = RuleId::other_accelerator,
         .name = "other-accelerator",
         .check = "",
         .word = "not viable",
         .why = "the kernel gives a VM a whole group or nothing of it",
         .blocks = bind},
    Rule{.id = RuleId::record_unreadable,
         .name = "record-unreadable",
         .check = "undo-record",
         .word = "blocked",
         .why = "without its record the earlier driver of a function would be lost for good",
         .blocks = bind | prepare,
         .of_a_change = true},
    Rule{.id = RuleId::override_unread,
         .name = "override-unread",
         .check = "",
         .word = "blocked",
         .why = "without the earlier driver_override a function cannot be brought back as it was",
         .blocks = bind | prepare,
         .of_a_change = true},
};

static_assert(
    [] {
      for (std::size_t i = 0; i < kRules.size(); ++i)
        if (static_cast<std::size_t>(kRules.at(i).id) != i) return false;
      return true;
    }(),
    "rule() finds a rule by its number");

}  // namespace

std::string_view text(Blocks one) {
  constexpr Words<Blocks, 5> kWords = {{{"bind", bind},
                                        {"advertise", advertise},
                                        {"allocate", allocate},
                                        {"prepare", prepare},
                                        {"ready", ready}}};
  return word_for(kWords, one);
}

std::span<const Blocks> all_blocks() {
  static constexpr std::array kEach = {bind, advertise, allocate, prepare, ready};
  return kEach;
}

std::string_view text(Answer answer) {
  return answer == Answer::yes ? "yes" : "not looked at";
}

std::span<const Rule> rules() {
  return kRules;
}

const Rule& rule(RuleId id) {
  return kRules.at(static_cast<std::size_t>(id));
}

Finding interrupted_mode_change(const PciAddress& device, std::string why) {
  return {.rule = RuleId::interrupted_mode_change,
          .about = device,
          .text = std::move(why),
          .advice = "\"After a crash\" in docs/cc.md says how to undo the change"};
}

Finding not_sanitized(const PciAddress& gpu, std::string why) {
  return {.rule = RuleId::not_sanitized,
          .about = gpu,
          .text = std::move(why),
          .advice = fmt::format("`ferry history {0}` says when and how; `ferry sanitize {0}` tries again",
                                gpu.text())};
}

std::span<const Finding> findings_about(const GpuFindings& all, const PciAddress& gpu) {
  const auto found = all.find(gpu);
  return found == all.end() ? std::span<const Finding>() : std::span<const Finding>(found->second);
}

const Finding* against(std::span<const Finding> findings, Blocks what) {
  const auto found =
      std::ranges::find_if(findings, [&](const Finding& finding) { return finding.blocks(what); });
  return found == findings.end() ? nullptr : &*found;
}

std::vector<const Finding*> obstacles_to(std::span<const Finding> findings, Blocks what) {
  std::vector<const Finding*> out;
  for (const Finding& finding : findings)
    if (finding.answer == Answer::yes && finding.blocks(what) && !rule(finding.rule).passes)
      out.push_back(&finding);
  return out;
}

const Finding* illness_of(const PciFunction& gpu, std::span<const Finding> findings) {
  const auto found = std::ranges::find_if(findings, [&](const Finding& finding) {
    return finding.answer == Answer::yes && rule(finding.rule).of_the_device &&
           (on_vfio_driver(gpu) || finding.about == gpu.address || finding.rule == RuleId::stuck_write);
  });
  return found == findings.end() ? nullptr : &*found;
}

const Finding* obstacle_to(std::span<const Finding> findings, Blocks what) {
  const auto all = obstacles_to(findings, what);
  return all.empty() ? nullptr : all.front();
}

}  // namespace ferry::vfio
