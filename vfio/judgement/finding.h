// SPDX-License-Identifier: Apache-2.0
// The reasons why a VM can or cannot have an accelerator now, and the table of their kinds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vfio/pci/pci_address.h"
#include "vfio/pci/pci_function.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {

/// The acts that a reason may keep from an accelerator. A bit each.
enum class Blocks : std::uint8_t {
  nothing = 0,
  bind = 1,       ///< a change of its unit's drivers to vfio
  advertise = 2,  ///< a place in the list of the kubelet, as a healthy device
  allocate = 4,   ///< an allocation to a pod
  prepare = 8,    ///< a ResourceClaim that asks for it whole
  ready = 16,     ///< state `ready` of a GPU that is to be passed through
};
constexpr Blocks operator|(Blocks a, Blocks b) {
  return static_cast<Blocks>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool has(Blocks all, Blocks one) {
  return (static_cast<std::uint8_t>(all) & static_cast<std::uint8_t>(one)) != 0;
}
/// "bind", "advertise", "allocate", "prepare", "ready"; in this order all of them.
std::string_view text(Blocks one);
std::span<const Blocks> all_blocks();

enum class Answer : std::uint8_t {
  yes,         ///< the obstacle is there
  not_looked,  ///< this process cannot see it, or has not looked; never the same as "not there"
};
std::string_view text(Answer answer);

/// In the order of the table, the gravest first.
enum class RuleId : std::uint8_t {
  off_the_bus,
  unreadable,
  power_error,
  stuck_write,
  iommu_off,
  noiommu_mode,
  no_group,
  switch_management,
  reserved_region,
  group_not_viable,
  foreign_driver,
  foreign_user,
  framebuffer_on_vfio,
  nodes_missing,
  fatal_errors,
  interrupted_mode_change,
  not_sanitized,
  fabric_switch,
  unfinished_card,
  boot_display,
  firmware_framebuffer,
  in_use,
  vgpus_present,
  functions_enabled,
  other_accelerator,
  record_unreadable,
  override_unread,
};

/// One kind of reason: a row of the table in docs/findings.md.
struct Rule {
  RuleId id;
  std::string_view name;  ///< stable, for programs: "off-the-bus"
  /// The check of `ferry doctor` that this rule decides, with others of the same check. Empty: none, since
  /// the rule is about the moment and not about the host.
  std::string_view check;
  std::string_view word;  ///< of `ferry status` for a GPU for which it is the gravest reason
  std::string_view why;   ///< why it matters, for people
  Blocks blocks;
  Blocks blocks_unlooked = Blocks::nothing;  ///< what Answer::not_looked blocks
  /// The device itself does not work, whoever has it: its vGPUs do not work either.
  bool of_the_device = false;
  /// The kernel gives no VM such a device, even if Ferry bound it.
  bool of_the_kernel = false;
  /// It counts only against a change of drivers: it does not matter for a unit that is on vfio already.
  bool of_a_change = false;
  /// It ends with a device user, or by a step that a policy or a claim takes first.
  bool passes = false;
  bool warns = false;  ///< `ferry doctor` warns of it, since a person may accept it
};

/// Every rule, in the order of RuleId.
std::span<const Rule> rules();
const Rule& rule(RuleId id);

/// One reason about one accelerator's unit. A rule without a finding has looked, and found nothing.
struct Finding {
  RuleId rule = RuleId::off_the_bus;
  Answer answer = Answer::yes;
  PciAddress about;                     ///< the function that it is about
  std::string text = {};                ///< a sentence without its full stop, with the address
  std::string advice = {};              ///< empty: the text says all
  std::optional<DeviceUser> user = {};  ///< of RuleId::in_use

  bool blocks(Blocks what) const {
    const Rule& of = vfio::rule(rule);
    return has(answer == Answer::yes ? of.blocks : of.blocks_unlooked, what);
  }
};

/// The findings of these rules. `why`: a sentence without its full stop, with the address.
Finding interrupted_mode_change(const PciAddress& device, std::string why);
Finding not_sanitized(const PciAddress& gpu, std::string why);

/// The findings of each accelerator, the gravest first.
using GpuFindings = std::map<PciAddress, std::vector<Finding>>;
/// Empty for a GPU that is not in `all`.
std::span<const Finding> findings_about(const GpuFindings& all, const PciAddress& gpu);

/// The gravest finding that blocks `what`; nullptr: none does.
const Finding* against(std::span<const Finding> findings, Blocks what);
/// The same without those that pass (Rule::passes) and those that were not looked at.
const Finding* obstacle_to(std::span<const Finding> findings, Blocks what);
/// All of them.
std::vector<const Finding*> obstacles_to(std::span<const Finding> findings, Blocks what);
/// The gravest finding of a device that does not work (Rule::of_the_device); nullptr: there is none. Another
/// member's counts for a GPU on a vfio driver, which a VM gets with it. For a GPU that serves the host or
/// vGPUs only a write to the member counts, since it may keep locks that the GPU needs.
const Finding* illness_of(const PciFunction& gpu, std::span<const Finding> findings);

}  // namespace ferry::vfio
