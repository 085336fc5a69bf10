// SPDX-License-Identifier: Apache-2.0
#include "mdev/stuck_gpus.h"

#include <algorithm>
#include <string>
#include <utility>

#include "vfio/pci/pci_function.h"

namespace ferry::mdev {

StuckGpus::StuckGpus(std::vector<StuckWrite> writes) : writes_(std::move(writes)) {
  std::erase_if(writes_, is_read);
}

Result<StuckGpus> StuckGpus::read(const HostFs& host) {
  auto writes = stuck_writes(host);
  if (!writes) return fail(std::move(writes).error());
  return StuckGpus(std::move(*writes));
}

// Follows links only: the kernel keeps them, and reading one cannot hang in the driver.
std::vector<const StuckWrite*> StuckGpus::writes_on(const HostFs& host,
                                                    const vfio::PciAddress& function) const {
  std::vector<const StuckWrite*> out;
  if (writes_.empty()) return out;
  const auto add = [&](const std::string& device) {
    for (const StuckWrite& write : writes_) {
      if (concerns(write, device)) out.push_back(&write);
    }
  };
  const std::string gpu = host.link_name(vfio::sysfs_path(function) / "physfn").value_or(function.text());
  add(gpu);
  const auto address = vfio::PciAddress::parse(gpu);
  if (!address) {
    add(function.text());
    return out;
  }
  for (const std::string& name : host.list(vfio::sysfs_path(*address)).value_or(std::vector<std::string>{})) {
    if (!name.starts_with("virtfn")) continue;
    if (const auto other = host.link_name(vfio::sysfs_path(*address) / name)) add(*other);
  }
  return out;
}

bool StuckGpus::contains(const HostFs& host, const vfio::PciAddress& function) const {
  return is_on(function.text()) || !writes_on(host, function).empty();
}

bool StuckGpus::is_late(const HostFs& host, const vfio::PciAddress& function) const {
  return std::ranges::any_of(writes_on(host, function), &StuckWrite::late);
}

bool StuckGpus::is_on(const std::string& device) const {
  return std::ranges::any_of(writes_, [&](const StuckWrite& write) { return concerns(write, device); });
}

Error stuck_error(const vfio::PciAddress& function) {
  return {.code = Errc::stuck,
          .message = function.text() + ": an earlier write to its GPU has not returned from the kernel",
          .hint = "it is left alone until then; if that never comes, only a reboot helps"};
}

}  // namespace ferry::mdev
