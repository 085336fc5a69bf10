// SPDX-License-Identifier: Apache-2.0
#include "vfio/sanitize/function_reset.h"

#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "vfio/pci/inventory.h"
#include "vfio/pci/pci_function.h"
#include "vfio/registers/reading_record.h"

namespace ferry::vfio {
namespace {

constexpr const char* kNoMethod = "the kernel knows no method to reset it";

// Empty: it may be reset.
std::string why_not_reset(const PciFunction& function) {
  if (function.driver != "vfio-pci")
    return fmt::format("it is on {}, not on vfio-pci",
                       function.driver ? "driver " + *function.driver : "no driver");
  if (function.sriov_numvfs > 0) return fmt::format("it has {} virtual functions", function.sriov_numvfs);
  if (function.problem && function.bus != BusLook::asleep) return function.problem->message;
  return {};
}

// The kernel demands that each function that a hot reset touches is on a vfio driver, and that a given group
// has each one that is open. A function that is closed at that moment may still be a VM's. So all groups are
// held. False: it is not possible, or another group that it reaches is in use.
// Source: drivers/vfio/pci/vfio_pci_core.c, vfio_pci_dev_set_hot_reset().
bool try_hot_reset(const HostFs& host, const PciAddress& address, std::uint32_t group, GroupCalls& calls) {
  const auto touched = calls.open_and_list(address, group);
  if (!touched) return false;
  std::set<std::uint32_t> others;
  for (const TouchedFunction& one : *touched) {
    const auto function = read_function(host, one.address);
    if (!function || !on_vfio_driver(*function)) return false;
    if (one.group != group) others.insert(one.group);
  }
  for (const std::uint32_t other : others)
    if (!calls.hold(other)) return false;
  return calls.hot_reset().has_value();
}

// ABI: sysfs `reset` and `reset_method`, drivers/pci/pci.c and pci-sysfs.c. Neither file is there if the
// kernel has no method. Before Linux 5.15 it did not name them. ENOTTY: it has tried all, and none was
// possible. Such is the method "bus" of a function that shares its bus.
Result<std::string> reset_by_sysfs(HostFs& host, const PciAddress& address) {
  const std::string methods = host.read_attribute(sysfs_path(address) / "reset_method").value_or("reset");
  std::string_view rest = methods;
  const std::string first(cut(rest, ' '));
  if (first.empty()) return fail(Errc::unsupported, kNoMethod);
  auto written = host.write_attribute(sysfs_path(address) / "reset", "1");
  if (written) return first;
  if (is_gone(written.error())) return fail(Errc::unsupported, kNoMethod);
  if (written.error().code == std::errc::inappropriate_io_control_operation)
    return fail(Errc::failed, fmt::format("none of the kernel's methods ({}) can reset it", methods));
  return fail(std::move(written).error());
}

}  // namespace

Sanitizing reset_function(HostFs& host, const PciAddress& address, GroupCalls& calls) {
  const auto faulty = [&](std::string_view why) {
    return Sanitizing{.problem = fmt::format("reset {}: {}", address.text(), why)};
  };
  const auto function = read_function(host, address);
  if (!function) return faulty(function.error().message);
  if (const std::string why = why_not_reset(*function); !why.empty()) return faulty(why);
  if (is_opened(host, address)) return {.in_use = true};
  if (const auto group = function->iommu_group) {
    const auto held = calls.hold(*group);
    if (!held && held.error().code == std::errc::device_or_resource_busy) return {.in_use = true};
    if (held) {
      const bool done = try_hot_reset(host, address, *group, calls);
      calls.close_function();
      if (done) return {.method = kHotReset};
    }
  }
  // A group that could not be held may have a user by now.
  if (is_opened(host, address)) return {.in_use = true};
  auto method = reset_by_sysfs(host, address);
  if (!method) return faulty(method.error().message);
  return {.method = std::move(*method)};
}

}  // namespace ferry::vfio
