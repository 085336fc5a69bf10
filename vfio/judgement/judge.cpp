// SPDX-License-Identifier: Apache-2.0
#include "vfio/judgement/judge.h"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/text/text.h"
#include "vfio/pci/vm_nodes.h"

namespace ferry::vfio {
namespace {

constexpr const char* kBackOnTheBus =
    "`dmesg` says what the kernel saw; a reset of its slot or a cold start (the machine off and on again) "
    "may "
    "bring it back";

constexpr const char* kForeign =
    "another slot, or ACS and SR-IOV in the firmware, may give the card a group of its own; or unbind the "
    "driver of each such device that the host can do without: a device without a driver is no obstacle";

/// The findings of one unit, as they are made.
class Judgement {
 public:
  Judgement(const Unit& unit, const Inventory& inventory, const AcceleratorRules& rules,
            const Observed& observed, const Asked& asked)
      : unit_(unit), inventory_(inventory), rules_(rules), observed_(observed), asked_(asked) {
    for (const PciAddress& address : unit.functions) {
      const PciFunction* function = inventory.find(address);
      members_.emplace_back(function, member_of(inventory, unit, asked.with, rules, *function).role);
    }
  }

  std::vector<Finding> findings() && {
    if (const auto active = require_iommu(inventory_); !active)
      add(inventory_.unsafe_noiommu ? RuleId::noiommu_mode : RuleId::iommu_off, first(),
          active.error().message, active.error().hint);
    for (const auto& [function, role] : members_) {
      if (role != MemberRole::bridge) judge_bus(*function, role);
      judge_writes(*function, role);
      judge_switch_management(*function);
      if (role == MemberRole::in_the_way) judge_foreign(*function);
      if (!changes_driver(role)) continue;
      judge_place(*function, role);
      if (!on_vfio_driver(*function)) judge_screen(*function, role);
      judge_use(*function);
      judge_virtual_functions(*function);
      if (function->override_unread && function->problem)
        add(RuleId::override_unread, *function,
            fmt::format("{} cannot be read: {}", function->address.text(), function->problem->message),
            function->problem->hint);
    }
    add_others();
    for (const std::uint32_t group : groups_of(inventory_, unit_.functions)) {
      judge_regions(group);
      judge_viability(group);
      if (observed_.unreadable_records == nullptr) continue;
      if (const auto record = observed_.unreadable_records->find(group);
          record != observed_.unreadable_records->end())
        add(RuleId::record_unreadable, first(), record->second.message,
            !record->second.hint.empty() ? record->second.hint
                                         : "make the file readable, or remove it: `ferry vfio unbind` then "
                                           "lets the kernel choose a driver");
    }
    std::ranges::stable_sort(found_, {}, [](const Finding& finding) {
      return std::pair(finding.answer != Answer::yes, finding.rule);
    });
    return std::move(found_);
  }

 private:
  void add(RuleId rule, const PciFunction& about, std::string text, std::string advice = {},
           Answer answer = Answer::yes) {
    found_.push_back({.rule = rule,
                      .answer = answer,
                      .about = about.address,
                      .text = std::move(text),
                      .advice = std::move(advice)});
  }
  const PciFunction& first() const { return *inventory_.find(unit_.accelerators.front()); }
  /// The accelerator with which a function changes its driver.
  const PciAddress& gpu_of(const PciFunction& function) const {
    const auto gpu = std::ranges::find_if(unit_.accelerators, [&](const PciAddress& asked) {
      return asked == function.address || is_companion(*inventory_.find(asked), function);
    });
    return gpu == unit_.accelerators.end() ? unit_.accelerators.front() : *gpu;
  }
  /// The options that name the accelerators of the unit, and the others that must go along.
  std::string all_named() const {
    std::string out;
    for (const PciAddress& asked : unit_.accelerators) out += " --device " + asked.text();
    for (const PciFunction* function : others_) out += " --device " + function->address.text();
    return out;
  }
  bool is_shed(const PciAddress& accelerator) const {
    return asked_.all_shed || asked_.sheds.contains(accelerator);
  }

  void judge_bus(const PciFunction& function, MemberRole role) {
    const std::string name = function.address.text();
    if (function.bus == BusLook::asleep && changes_driver(role))
      add(RuleId::off_the_bus, function,
          fmt::format("{} sleeps (D3cold), and is not woken to see whether it answers", name), {},
          Answer::not_looked);
    if (function.bus == BusLook::error && changes_driver(role))
      add(RuleId::power_error, function, fmt::format("{} has the power state error", name),
          "a cold start of the host; if it stays, the card or its slot is faulty");
    // An unreadable override matters for a change alone.
    if (!function.problem || (function.override_unread && function.bus != BusLook::all_ones)) return;
    const bool gone = function.bus == BusLook::all_ones;
    std::string advice = function.problem->hint;
    if (advice.empty()) advice = gone ? kBackOnTheBus : "run as root; `dmesg` says what the kernel saw";
    add(gone ? RuleId::off_the_bus : RuleId::unreadable, function,
        fmt::format("{}{} cannot be read: {}", name, changes_driver(role) ? "" : " shares the group and",
                    function.problem->message),
        std::move(advice));
  }

  void judge_switch_management(const PciFunction& function) {
    const auto known = inventory_.switch_management.find(function.address);
    if (known == inventory_.switch_management.end() && may_manage_switches(function))
      return add(RuleId::switch_management, function,
                 fmt::format("the vpd of {} cannot be read, so it may manage the NVSwitches of its board",
                             describe(function)),
                 "read it as root; the kernel's log says why it fails", Answer::not_looked);
    if (known == inventory_.switch_management.end() || !known->second) return;
    add(RuleId::switch_management, function,
        fmt::format("{} manages the NVSwitches of its board (SW_MNG): its reset would reset the switches of "
                    "all tenants",
                    describe(function)),
        "leave it to the host's driver; ACS in the firmware may give the GPU a group of its own");
  }

  /// Judges a member that is not asked for and whose driver keeps the group from VMs.
  void judge_foreign(const PciFunction& function) {
    for (const PciAddress& asked : unit_.accelerators) {
      if (inventory_.find(asked)->physical_function == function.address) {
        return add(RuleId::foreign_driver, function,
                   fmt::format("{} is the physical function of {} and shares its group", describe(function),
                               asked.text()),
                   "ACS in the firmware, or another slot, may give each virtual function a group of its own");
      }
      if (function.physical_function == asked) {
        // A GPU on vfio does not change its driver, so it sheds none.
        if (is_shed(asked) && !on_vfio_driver(*inventory_.find(asked))) return;
        return add(RuleId::foreign_driver, function,
                   fmt::format("{} is a virtual function of {} and shares its group", describe(function),
                               asked.text()),
                   "disable the virtual functions first: a physical function that has some does not change "
                   "its driver");
      }
    }
    if (is_another(function)) return add_other(function);
    if (function.is_bridge() || function.pci_class() == PciClass::host_bridge) {
      return add(RuleId::foreign_driver, function,
                 fmt::format("the group is blocked by the driver of bridge {}", describe(function)),
                 kForeign);
    }
    // A function of another card goes with the accelerator of that card, which is named in its place.
    for (const auto& [other, role] : members_)
      if (role != MemberRole::accelerator && is_another(*other) && is_companion(*other, function))
        return add_other(*other);
    const bool of_card = std::ranges::any_of(unit_.accelerators, [&](const PciAddress& asked) {
      return may_be_of_the_card(*inventory_.find(asked), function);
    });
    add(blocks_viability(function) ? RuleId::foreign_driver : RuleId::foreign_user, function,
        fmt::format("{} shares the group and is not part of the card", describe(function)),
        of_card ? fmt::format("if it is of the card, `--with {}` binds it too", function.address.text())
                : kForeign);
  }

  bool is_another(const PciFunction& function) const {
    return rules_.match(function) || is_accelerators_vf(inventory_, rules_, function) ||
           (rules_.vendors.contains(function.vendor) && rules_.match_by_name(function));
  }

  void add_other(const PciFunction& function) {
    if (std::ranges::find(others_, &function) == others_.end()) others_.push_back(&function);
  }

  void judge_place(const PciFunction& function, MemberRole role) {
    if (!function.iommu_group && inventory_.has_iommu() && function.problem) {
      add(RuleId::no_group, function,
          fmt::format("the IOMMU group of {} cannot be read", function.address.text()), "run as root",
          Answer::not_looked);
    } else if (!function.iommu_group && inventory_.has_iommu()) {
      add(RuleId::no_group, function, fmt::format("{} is in no IOMMU group", function.address.text()),
          inventory_.iommu_cure.empty() ? "another slot: the IOMMU is on and does not cover this one"
                                        : inventory_.iommu_cure);
    }
    if (role == MemberRole::accelerator) {
      judge_withheld(function, observed_.open_modes, interrupted_mode_change);
      judge_withheld(function, observed_.unsanitized, not_sanitized);
    }
    if (!on_vfio_driver(function)) return;
    if (observed_.fatal_errors == nullptr) {
      add(RuleId::fatal_errors, function,
          fmt::format("fatal errors of {} since it was bound were not counted", function.address.text()), {},
          Answer::not_looked);
    } else {
      if (const auto errors = observed_.fatal_errors->find(function.address);
          errors != observed_.fatal_errors->end())
        add(RuleId::fatal_errors, function, fmt::format("{} had {}", function.address.text(), errors->second),
            fmt::format("an error counts until the function is bound anew: `ferry vfio unbind --device {0}`, "
                        "then `bind --device {0}`",
                        gpu_of(function).text()));
    }
    if (role != MemberRole::accelerator) return;
    if (!function.firmware_framebuffer) {
      add_hidden_framebuffer(RuleId::framebuffer_on_vfio, function);
    } else if (!function.firmware_framebuffer->empty()) {
      add(RuleId::framebuffer_on_vfio, function,
          fmt::format("the firmware's framebuffer {} lies in the memory of {}: a VM's start fails, since it "
                      "cannot reserve that memory",
                      *function.firmware_framebuffer, function.address.text()),
          "boot without a framebuffer driver on this card (another primary display in the firmware setup), "
          "or "
          "unbind the card and bind it again once that driver has released it");
    }
  }

  /// `reasons`: of the devices that no VM may get now.
  void judge_withheld(const PciFunction& function, const std::map<PciAddress, std::string>* reasons,
                      Finding (*finding)(const PciAddress&, std::string)) {
    if (reasons == nullptr) return;
    if (const auto why = reasons->find(function.address); why != reasons->end())
      found_.push_back(finding(function.address, why->second));
  }

  void judge_screen(const PciFunction& function, MemberRole role) {
    if (asked_.force) return;
    using Kind = DeviceUser::Kind;
    const auto add_screen = [&](RuleId rule, Kind kind, std::string name, std::string_view advice) {
      const DeviceUser user{.kind = kind, .name = std::move(name), .what = {}};
      add(rule, function, fmt::format("{} is in use: {}", function.address.text(), user.text()),
          fmt::format("{}; {}", user.remedy(), advice));
    };
    const auto users =
        observed_.use == nullptr ? std::span<const DeviceUser>() : observed_.use->of(function.address.text());
    const auto is_seen = [&](Kind kind) { return std::ranges::find(users, kind, &DeviceUser::kind); };
    if (function.boot_display || is_seen(Kind::boot_display) != users.end())
      add_screen(RuleId::boot_display, Kind::boot_display, "boot_vga",
                 "or choose another primary display in the firmware setup, on a server the BMC's");
    else if (function.boot_display_unread)
      add(RuleId::boot_display, function,
          fmt::format("{} says neither 0 nor 1", path_text(function, "boot_vga")), "run as root",
          Answer::not_looked);
    const auto framebuffer = is_seen(Kind::framebuffer);
    const std::string name =
        framebuffer != users.end() ? framebuffer->name : function.firmware_framebuffer.value_or("");
    if (!name.empty()) {
      add_screen(
          RuleId::firmware_framebuffer, Kind::framebuffer, name,
          function.pci_class() == PciClass::vga
              ? "Linux 6.0 and newer releases the memory when vfio-pci takes the device; before, boot "
                "with video=efifb:off"
              : "boot with initcall_blacklist=sysfb_init: vfio-pci releases the memory for VGA devices "
                "only");
    } else if (!function.firmware_framebuffer && role == MemberRole::accelerator) {
      add_hidden_framebuffer(RuleId::firmware_framebuffer, function);
    }
  }

  void add_hidden_framebuffer(RuleId rule, const PciFunction& function) {
    add(rule, function,
        fmt::format("a framebuffer of the firmware may lie in {}: /proc/iomem or its BARs cannot be read, or "
                    "the file hides all addresses",
                    function.address.text()),
        "run as root", Answer::not_looked);
  }

  void judge_use(const PciFunction& function) {
    const std::string name = function.address.text();
    if (observed_.use == nullptr) {
      return add(RuleId::in_use, function, fmt::format("it was not looked who uses {}", name), {},
                 Answer::not_looked);
    }
    if (const auto why = observed_.use->blind_to(name); !why.empty())
      add(RuleId::in_use, function, fmt::format("Ferry cannot find out whether {} is in use: {}", name, why),
          std::string(observed_.use->remedy_of_blindness()), Answer::not_looked);
    for (const DeviceUser& user : observed_.use->of(name)) {
      if (user.only_a_screen()) continue;  // judge_screen() has it
      // A switch that a running manager serves for several VMs goes to none of them. Only a switch has that
      // user on a vfio driver.
      const bool is_shared = user.kind == DeviceUser::Kind::fabric && on_vfio_driver(function);
      add(is_shared ? RuleId::fabric_switch : RuleId::in_use, function,
          fmt::format("{} is in use: {}", name, user.text()), std::string(user.remedy()));
      found_.back().user = user;
    }
  }

  /// A write to a virtual function holds the driver of its GPU, too.
  void judge_writes(const PciFunction& function, MemberRole role) {
    if (observed_.stuck == nullptr || observed_.stuck->empty()) return;
    for (const auto& [address, about] : inventory_.functions) {
      const bool is_of_gpu = role == MemberRole::accelerator && about.physical_function == function.address &&
                             std::ranges::find(unit_.functions, address) == unit_.functions.end();
      if ((address == function.address || is_of_gpu) && observed_.stuck->contains(address.text()))
        add(RuleId::stuck_write, about,
            fmt::format("an earlier write to {} has not returned from the kernel", address.text()),
            "see /run/ferry/stuck-writes; if it never returns, only a reboot helps");
    }
  }

  void judge_virtual_functions(const PciFunction& function) {
    if (is_shed(function.address)) return;
    if (observed_.carriers != nullptr) {
      if (const auto carrier = observed_.carriers->find(function.address);
          carrier != observed_.carriers->end())
        add(RuleId::vgpus_present, function, fmt::format("{} {}", function.address.text(), carrier->second));
    }
    if (function.sriov_numvfs > 0 && !on_vfio_driver(function))
      add(RuleId::functions_enabled, function,
          fmt::format("{} has {} enabled", function.address.text(),
                      counted(function.sriov_numvfs, "virtual function")),
          "disable the virtual functions first: a physical function that has some does not change its "
          "driver");
  }

  void add_others() {
    std::vector<std::string> names;
    for (const PciFunction* function : others_) names.push_back(function->address.text());
    const auto place = asked_.named_at.find(unit_.accelerators.front());
    const std::string advice =
        place == asked_.named_at.end()
            ? "name all of them:" + all_named()  // also where --all or a filter has chosen some
            : fmt::format("{}: name {} there too, by `address`: {}", place->second,
                          names.size() == 1 ? "it" : "them", fmt::join(names, ", "));
    for (const PciFunction* function : others_)
      add(RuleId::other_accelerator, *function,
          fmt::format("{} is another accelerator of the same group and was not asked for",
                      describe(*function)),
          advice);
  }

  void judge_regions(std::uint32_t group) {
    const auto known = inventory_.reserved.find(group);
    if (known == inventory_.reserved.end()) {
      const auto why = inventory_.reserved_unread.find(group);
      if (why != inventory_.reserved_unread.end())
        return add(RuleId::reserved_region, first(), why->second.message, why->second.hint,
                   Answer::not_looked);
      return add(RuleId::reserved_region, first(),
                 fmt::format("/sys/kernel/iommu_groups/{}/reserved_regions was not read", group), {},
                 Answer::not_looked);
    }
    const auto region = std::ranges::find_if(known->second, &ReservedRegion::keeps_from_vms);
    if (region == known->second.end()) return;
    add(RuleId::reserved_region, first(),
        fmt::format("the firmware reserves {}-{} for group {} (direct in "
                    "/sys/kernel/iommu_groups/{}/reserved_regions): the kernel gives the group to no VM",
                    region->start, region->end, group, group),
        "in the firmware setup, switch pre-boot or kernel DMA protection off (AMD, Intel), or the shared "
        "memory of the slot (HPE)");
  }

  /// Judges the drivers of the host that keep a device on vfio from VMs, as the kernel does, and those that a
  /// bind of the whole card would take away.
  void judge_viability(std::uint32_t group) {
    const auto is_on_vfio = [&](const PciAddress& asked) { return on_vfio_driver(*inventory_.find(asked)); };
    if (!std::ranges::any_of(unit_.accelerators, is_on_vfio)) return;
    const bool in_group = std::ranges::any_of(unit_.accelerators, [&](const PciAddress& asked) {
      return is_on_vfio(asked) && inventory_.find(asked)->iommu_group == group;
    });
    std::vector<std::string> who;
    const PciFunction* blocker = nullptr;
    bool movable = true;
    for (const auto& [function, role] : members_) {
      if (function->iommu_group != group || !function->driver || on_vfio_driver(*function)) continue;
      if (in_group && blocks_viability(*function)) {
        if (blocker == nullptr) blocker = function;
        who.push_back(fmt::format("{} ({}, driver {})", function->address.text(), kind_of(*function),
                                  *function->driver));
        movable = movable && changes_driver(role);
      } else if (role == MemberRole::companion) {
        add(RuleId::unfinished_card, *function,
            fmt::format("{} of its card is on {}", function->address.text(), *function->driver),
            rebind_advice());
      }
    }
    if (blocker != nullptr)
      add(RuleId::group_not_viable, *blocker,
          fmt::format("{} {} the kernel from giving the group to a VM", fmt::join(who, ", "),
                      who.size() == 1 ? "keeps" : "keep"),
          movable ? rebind_advice() : advice_on_foreigners(group));
    judge_nodes(group);
  }

  /// The advice of the findings that keep the group from a bind.
  std::string advice_on_foreigners(std::uint32_t group) const {
    const auto found = std::ranges::find_if(found_, [&](const Finding& one) {
      return (one.rule == RuleId::foreign_driver || one.rule == RuleId::other_accelerator) &&
             inventory_.find(one.about)->iommu_group == group;
    });
    return found == found_.end() ? std::string() : found->advice;
  }

  std::string rebind_advice() const {
    return fmt::format("`ferry vfio bind{}` also binds the rest of its card and group", all_named());
  }

  void judge_nodes(std::uint32_t group) {
    std::vector<std::string> own;
    bool on_vfio = false;
    for (const auto& [function, role] : members_) {
      if (function->iommu_group != group || !on_vfio_driver(*function)) continue;
      on_vfio = true;
      if (function->vendor == first().vendor && !function->vfio_devices.empty())
        own.push_back(function->vfio_devices.front());
    }
    if (!on_vfio) return;
    if (!inventory_.vm_nodes) {
      return add(RuleId::nodes_missing, first(),
                 fmt::format("/dev/vfio was not read for the nodes of group {}", group), {},
                 Answer::not_looked);
    }
    const auto is_there = [&](const std::string& node) { return inventory_.vm_nodes->contains(node); };
    if (vm_nodes(is_there, group, own).empty())
      add(RuleId::nodes_missing, first(), missing_nodes(group),
          "see that devtmpfs is mounted on /dev, and that udev makes the nodes of vfio");
  }

  const Unit& unit_;
  const Inventory& inventory_;
  const AcceleratorRules& rules_;
  const Observed& observed_;
  const Asked& asked_;
  std::vector<std::pair<const PciFunction*, MemberRole>> members_;
  std::vector<const PciFunction*> others_;
  std::vector<Finding> found_;
};

}  // namespace

std::vector<Finding> judge(const Unit& unit, const Inventory& inventory, const AcceleratorRules& rules,
                           const Observed& observed, const Asked& asked) {
  return Judgement(unit, inventory, rules, observed, asked).findings();
}

GpuFindings judge_all(const Inventory& inventory, const AcceleratorRules& rules, const Observed& observed,
                      const Asked& asked, const std::set<PciAddress>& more) {
  std::vector<PciAddress> accelerators;
  for (const auto& [address, function] : inventory.functions)
    if (rules.match(function) || more.contains(address)) accelerators.push_back(address);
  GpuFindings out;
  for (const Unit& unit : units_of(inventory, accelerators, {})) {
    const std::vector<Finding> findings = judge(unit, inventory, rules, observed, asked);
    for (const PciAddress& address : unit.accelerators) out.emplace(address, findings);
  }
  return out;
}

std::string describe(const PciFunction& function) {
  return fmt::format("{} ({}, class {:04x}, {})", function.address.text(), function.ids(),
                     function.class_code >> 8U, function.driver ? "driver " + *function.driver : "no driver");
}

}  // namespace ferry::vfio
