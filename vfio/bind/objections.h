// SPDX-License-Identifier: Apache-2.0
// Objections to a change of a unit's drivers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vfio/bind/rebind_plan.h"
#include "vfio/judgement/judge.h"

namespace ferry::vfio {

/// Collects the objections to a unit's change; the first hint counts.
class Objections {
 public:
  void add(std::string reason, const std::string& hint = {}) {
    refusal_.reasons.push_back(std::move(reason));
    if (refusal_.hint.empty()) refusal_.hint = hint;
  }
  void add(const Finding& finding) {
    if (finding.answer == Answer::yes && rule(finding.rule).of_the_kernel) refusal_.kernel_refuses = true;
    add(finding.text, finding.advice);
  }
  /// Adds an objection that ends once the device user closes the function.
  void add_user(std::string reason, const std::string& hint) {
    ++users_;
    add(std::move(reason), hint);
  }
  bool any() const { return !refusal_.reasons.empty(); }
  /// True if an objection remains after all device users have closed the functions.
  bool lasting() const { return refusal_.reasons.size() > users_; }
  Refusal refusal(const Unit& unit, std::vector<std::uint32_t> groups) && {
    refusal_.devices = unit.accelerators;
    refusal_.groups = std::move(groups);
    return std::move(refusal_);
  }

 private:
  Refusal refusal_;
  std::size_t users_ = 0;
};

}  // namespace ferry::vfio
