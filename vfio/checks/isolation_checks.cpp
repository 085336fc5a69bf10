// SPDX-License-Identifier: Apache-2.0
// ABI: Documentation/ABI/testing/sysfs-class-iommu, sysfs-kernel-iommu_groups;
// Documentation/admin-guide/kernel-parameters.rst; ACPI table signatures of the UEFI forum's list.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/pci/iommu_state.h"

namespace ferry::vfio::checks {
namespace {

Check firmware_table_check(const IommuState& state) {
  Check check{"firmware-iommu-table", kHostSubject,
              "the kernel finds an IOMMU only where the firmware announces one"};
  if (!state.tables && !is_gone(state.tables.error()))
    return std::move(check).unreadable(state.tables.error());
  if (!state.tables) {
    return std::move(check).unknown(fmt::format(
        "there is no /{}{}", kIommuTables,
        state.device_tree ? ": this host is described by a device tree, and whether that names an IOMMU is "
                            "seen only by its being active"
                          : ""));
  }
  const auto tables = iommu_tables(*state.tables);
  if (!tables.empty())
    return std::move(check).passed(fmt::format("/{} has {}", kIommuTables, fmt::join(tables, ", ")));
  const std::string found = fmt::format("/{} has none of DMAR, IVRS, IORT, VIOT", kIommuTables);
  if (state.active()) return std::move(check).passed(found + "; an IOMMU is active all the same");
  return std::move(check).failed(found, firmware_switch(state.processor));
}

Check iommu_check(const IommuState& state, const Result<KernelCommandLine>& command_line) {
  Check check{"iommu-active", kHostSubject,
              "vfio takes a device only when an IOMMU keeps it to its VM's memory"};
  if (!state.units) return std::move(check).unreadable(state.units.error());
  if (!state.groups) return std::move(check).unreadable(state.groups.error());
  const std::size_t units = state.units->size();
  const std::size_t groups = state.groups->size();
  std::string found = fmt::format("{} in /{}, {} in /{}", counted(units, "IOMMU"), kIommuUnits,
                                  counted(groups, "group"), kIommuGroups);
  constexpr std::array<std::string_view, 4> kParameters = {"iommu", "intel_iommu", "amd_iommu",
                                                           "iommu.passthrough"};
  std::vector<std::string> said;
  if (command_line) {
    for (const KernelParameter& parameter : command_line->parameters())
      if (std::ranges::find(kParameters, parameter.name) != kParameters.end())
        said.push_back(shown(parameter.text));
  }
  if (!said.empty()) found += fmt::format("; /proc/cmdline has {}", fmt::join(said, " "));
  if (units > 0 && groups > 0) return std::move(check).passed(std::move(found));
  if (groups > 0) {
    return std::move(check).unknown(
        std::move(found) + "; vfio makes such groups, without isolation, in its mode without an IOMMU",
        "look at /sys/kernel/iommu_groups/*/name: vfio-noiommu is no isolation");
  }
  return std::move(check).failed(std::move(found), cure_of_inactive_iommu(state, command_line));
}

Check noiommu_check(const HostFs& host) {
  constexpr const char* kPath = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
  Check check{"noiommu-mode", kHostSubject,
              "in that mode a guest's device reads and writes all of the host's memory; ferry binds nothing "
              "while it is on"};
  const auto on = read_switch(host, kPath);
  if (!on && is_gone(on.error()))
    return std::move(check).passed(fmt::format("there is no /{}: vfio has no such mode now", kPath));
  if (!on) return std::move(check).unreadable(on.error());
  if (!*on) return std::move(check).passed(fmt::format("/{} is N", kPath));
  return std::move(check).failed(fmt::format("/{} is Y", kPath),
                                 fmt::format("write N to it, take the option out of /etc/modprobe.d and the "
                                             "kernel's command line, and switch the IOMMU on"));
}

// No file says if interrupts are remapped, but each interrupt shows the name of its chip. x86 puts IR- before
// the name when it remaps (arch/x86/kernel/apic/io_apic.c, drivers/iommu). Arm's ITS, which isolates by
// design, is named ITS. Remapping can thus be proven, but never its absence.
Check remapping_check(const HostFs& host) {
  constexpr const char* kPath = "proc/interrupts";
  Check check{
      "interrupt-remapping", kHostSubject,
      "without it a guest can raise any interrupt of the host; vfio then refuses a VM's start with EPERM"};
  const auto text = read_text(host, kPath, kListBytes);
  if (!text) return std::move(check).unreadable(text.error());
  std::string_view rest = *text;
  while (!rest.empty()) {
    // "  24:   0   9  IR-PCI-MSI 327680-edge  xhci_hcd": the chip is the first word after the counts.
    std::string_view line = cut(rest, '\n');
    cut(line, ':');
    const auto words = words_of(line);
    const auto chip = std::ranges::find_if(words, [](std::string_view word) {
      return word.find_first_not_of("0123456789") != std::string_view::npos;
    });
    if (chip != words.end() && (chip->starts_with("IR-") || chip->starts_with("ITS-")))
      return std::move(check).passed(fmt::format("/{} has the interrupt chip {}", kPath, shown(*chip)));
  }
  return std::move(check).unknown(
      fmt::format("/{} names no chip that remaps (IR-, ITS-), and the kernel says it nowhere else", kPath),
      "`dmesg` may have it; else it shows when a VM starts. If missing: a firmware update, not "
      "allow_unsafe_interrupts");
}

Check unsafe_interrupts_check(const HostFs& host) {
  Check check{"unsafe-interrupts", kHostSubject,
              "with that parameter a guest can raise any interrupt of the host"};
  std::vector<std::string> on;
  for (const char* module : {"vfio_iommu_type1", "iommufd"}) {
    const auto path = fmt::format("sys/module/{}/parameters/allow_unsafe_interrupts", module);
    const auto value = read_switch(host, path);
    if (!value && !is_gone(value.error())) return std::move(check).unreadable(value.error());
    if (value && *value) on.push_back("/" + path);
  }
  if (on.empty()) {
    return std::move(check).passed(
        "allow_unsafe_interrupts is on in neither /sys/module/vfio_iommu_type1 nor /sys/module/iommufd");
  }
  return std::move(check).warned(fmt::format("{} is Y", fmt::join(on, ", ")),
                                 "take allow_unsafe_interrupts out of /etc/modprobe.d and the kernel's "
                                 "command line; a host that needs it lacks interrupt remapping");
}

// vfio asks for the capability when it probes a device, and no file shows it. A device on vfio proves it.
Check coherency_check(const Inventory& inventory, const AcceleratorRules& rules) {
  Check check{"cache-coherency", kHostSubject,
              "vfio refuses a device (EINVAL) whose DMA does not snoop the caches, as on some Arm boards"};
  for (const auto& [address, function] : inventory.functions) {
    if (rules.match(function) && on_vfio_driver(function) && inventory.has_iommu()) {
      return std::move(check).passed(
          fmt::format("/{}/driver: vfio has taken it", sysfs_path(address).string()));
    }
  }
  return std::move(check).unknown("no file says it; the first device that vfio takes will show it");
}

// pcie_acs_override= splits groups and does not isolate their devices. The pci= parameters set bits of the
// ports' registers, and the kernel makes the groups after them.
Check acs_check(const Result<KernelCommandLine>& command_line) {
  Check check{"acs-override", kHostSubject,
              "groups split by such a parameter look isolated and are not: their devices can reach each "
              "other past the IOMMU"};
  if (!command_line) return std::move(check).unknown(command_line.error().message);
  std::vector<std::string> overrides;
  std::vector<std::string> bits;
  for (const KernelParameter& parameter : command_line->parameters()) {
    const std::string_view value = parameter.value ? std::string_view(*parameter.value) : std::string_view();
    if (parameter.name == "pcie_acs_override") overrides.push_back(shown(parameter.text));
    if (parameter.name == "pci" && (value.find("disable_acs_redir=") != std::string_view::npos ||
                                    value.find("config_acs=") != std::string_view::npos))
      bits.push_back(shown(parameter.text));
  }
  if (!overrides.empty()) {
    return std::move(check).warned(
        fmt::format("/proc/cmdline has {}", fmt::join(overrides, " ")),
        "take it out and reboot; ACS in the firmware setup or another slot gives groups that hold");
  }
  if (bits.empty()) return std::move(check).passed("/proc/cmdline alters no ACS setting");
  return std::move(check).passed(fmt::format(
      "/proc/cmdline has {}: it sets ACS bits of ports, and the groups follow them", fmt::join(bits, " ")));
}

}  // namespace

std::vector<Check> of_isolation(const HostFs& host, const Inventory& inventory, const AcceleratorRules& rules,
                                const Result<KernelCommandLine>& command_line) {
  const IommuState state = read_iommu_state(host);
  std::vector<Check> out;
  out.push_back(firmware_table_check(state));
  out.push_back(iommu_check(state, command_line));
  out.push_back(noiommu_check(host));
  out.push_back(remapping_check(host));
  out.push_back(unsafe_interrupts_check(host));
  if (state.processor.maker == Processor::Maker::arm) out.push_back(coherency_check(inventory, rules));
  out.push_back(acs_check(command_line));
  return out;
}

}  // namespace ferry::vfio::checks
