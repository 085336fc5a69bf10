// SPDX-License-Identifier: Apache-2.0
#include "mdev/held_gpus.h"

#include <algorithm>
#include <string>
#include <utility>

#include "vfio/pci_function.h"

namespace ferry {

Result<HeldGpus> HeldGpus::read(const HostFs& host) {
  auto acts = stuck_writes(host);
  if (!acts) return fail(std::move(acts).error());
  HeldGpus out;
  out.acts_ = std::move(*acts);
  std::erase_if(out.acts_, is_read);
  return out;
}

// Follows links only: the kernel keeps them, and reading one cannot hang in the driver.
std::vector<const StuckWrite*> HeldGpus::acts_on(const HostFs& host, const PciAddress& function) const {
  std::vector<const StuckWrite*> out;
  if (acts_.empty()) return out;
  const auto add = [&](const std::string& device) {
    for (const StuckWrite& act : acts_) {
      if (concerns(act, device)) out.push_back(&act);
    }
  };
  const std::string gpu = host.link_name(sysfs_path(function) / "physfn").value_or(function.text());
  add(gpu);
  const auto address = PciAddress::parse(gpu);
  if (!address) {
    add(function.text());
    return out;
  }
  for (const std::string& name : host.list(sysfs_path(*address)).value_or(std::vector<std::string>{})) {
    if (!name.starts_with("virtfn")) continue;
    if (const auto other = host.link_name(sysfs_path(*address) / name)) add(*other);
  }
  return out;
}

bool HeldGpus::holds(const HostFs& host, const PciAddress& function) const {
  return is_on(function.text()) || !acts_on(host, function).empty();
}

bool HeldGpus::holds_for_good(const HostFs& host, const PciAddress& function) const {
  return std::ranges::any_of(acts_on(host, function), &StuckWrite::late);
}

bool HeldGpus::is_on(const std::string& device) const {
  return std::ranges::any_of(acts_, [&](const StuckWrite& act) { return concerns(act, device); });
}

Error held_by_an_act(const PciAddress& function) {
  return {.code = make_error_code(Errc::stuck),
          .message = function.text() + ": an earlier write to its GPU has not returned from the kernel",
          .hint = "it is left alone until then; if that never comes, only a reboot helps"};
}

}  // namespace ferry
