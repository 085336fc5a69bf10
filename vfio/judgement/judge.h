// SPDX-License-Identifier: Apache-2.0
// The one judgement: can a VM have this accelerator now, and why not. Everything that says so asks judge():
// `status`, `explain`, `plan`, `bind`, `apply`, `doctor`, `assert`, the plugin's lists, the states of hostd,
// and ResourceClaims. It reads nothing; a fact that its caller does not have is "not looked at".
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "vfio/judgement/finding.h"
#include "vfio/judgement/unit_members.h"
#include "vfio/pci/inventory.h"
#include "vfio/use_probe.h"

namespace ferry::vfio {

/// Facts that are no part of a scan. nullptr: this process has not looked.
struct Observed {
  const UseReport* use = nullptr;
  const std::set<std::string>* stuck = nullptr;  ///< addresses with a write that has not returned
  /// Groups whose undo journal cannot be read (UndoJournal::unreadable).
  const std::map<std::uint32_t, Error>* unreadable_records = nullptr;
  /// Accelerators that must stay where they are, with the reason as a clause: "carries 2 vGPUs".
  const std::map<PciAddress, std::string>* carriers = nullptr;
  /// Accelerators whose last use is over and that are not sanitized, with the reason as a sentence.
  const std::map<PciAddress, std::string>* unsanitized = nullptr;
  /// Accelerators whose confidential mode the next reset may change, with the reason as a sentence.
  const std::map<PciAddress, std::string>* open_modes = nullptr;
  /// Fatal PCIe errors since the present binding, as a clause, by function (FatalErrors).
  const std::map<PciAddress, std::string>* fatal_errors = nullptr;
};

/// What the caller asks for.
struct Asked {
  std::set<PciAddress> with = {};   ///< members that are of the card, by the user's word
  std::set<PciAddress> sheds = {};  ///< accelerators that lose their virtual functions and vGPUs first
  bool all_shed = false;            ///< all of them do
  bool force = false;               ///< a screen does not count
  /// The place in a policy at which an accelerator is named, "policy.yaml:4", for advice.
  std::map<PciAddress, std::string> named_at = {};
};

/// The findings about one unit, the gravest first. `unit` comes from units_of(); its accelerators are the
/// ones that are asked for.
std::vector<Finding> judge(const Unit& unit, const Inventory& inventory, const AcceleratorRules& rules,
                           const Observed& observed, const Asked& asked = {});

/// The findings about every accelerator of the host (AcceleratorRules::match()) and `more`, as if all were
/// asked for at once.
GpuFindings judge_all(const Inventory& inventory, const AcceleratorRules& rules, const Observed& observed,
                      const Asked& asked, const std::set<PciAddress>& more = {});

/// A function in words: "0000:01:00.0 (10de:2684, class 0300, driver nouveau)".
std::string describe(const PciFunction& function);

}  // namespace ferry::vfio
