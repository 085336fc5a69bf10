// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/rebind_plan.h"

#include <algorithm>

#include "vfio/judgement/unit_members.h"

namespace ferry::vfio {

std::string Step::text() const {
  switch (kind) {
    case Kind::load_module:
      return "load module " + value;
    case Kind::set_override:
      return value.empty() ? "clear driver_override of " + address.text()
                           : "set driver_override of " + address.text() + " to " + value;
    case Kind::unbind:
      return "unbind " + address.text() + " from " + value;
    case Kind::bind:
      return "bind " + address.text() + " to " + value;
    case Kind::probe:
      return "let the kernel choose a driver for " + address.text();
    case Kind::quiesce:
      return user.quiesce_text();
    case Kind::resume:
      return user.resume_text();
  }
  return {};
}

std::vector<PciAddress> Rebind::rebinding() const {
  std::vector<PciAddress> out;
  for (const Member& member : members)
    if (changes_driver(member.role)) out.push_back(member.address);
  return out;
}

std::vector<PciAddress> Rebind::unbound() const {
  std::vector<PciAddress> out;
  for (const Member& member : members)
    if (changes_driver(member.role) && !member.removed_next) out.push_back(member.address);
  return out;
}

Step override_step(const PciFunction& function, const std::string& value, std::string why) {
  return {
      .kind = Step::Kind::set_override, .address = function.address, .value = value, .why = std::move(why)};
}

void add_override(const PciFunction& function, const std::string& driver,
                  const std::optional<std::string>& override_after, const std::string& why,
                  OverrideSteps& steps) {
  const bool after = override_after && *override_after != driver;
  const std::string for_bind = after ? driver : override_after.value_or("");
  if (function.driver_override.value_or("") != for_bind) {
    steps.before_bind.push_back(override_step(
        function, for_bind, after ? "the earlier one would keep the driver from binding" : why));
  }
  if (after) steps.after_bind.push_back(override_step(function, *override_after, why));
}

bool take_nothing(const std::vector<Step>& steps) {
  return std::ranges::all_of(steps, [](const Step& step) { return step.kind == Step::Kind::set_override; });
}

}  // namespace ferry::vfio
