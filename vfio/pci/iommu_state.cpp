// SPDX-License-Identifier: Apache-2.0
#include "vfio/pci/iommu_state.h"

#include <algorithm>

#include <fmt/format.h>

#include "hostfs/check_reading.h"

namespace ferry::vfio {
namespace {

// The parameter that keeps the IOMMU off, or nullptr. Parameters count as the kernel parses them: the last
// intel_iommu= wins, one "off" of the others is final.
const KernelParameter* off_switch(const KernelCommandLine& line) {
  if (const auto* off = line.listing("iommu", "off")) return off;
  if (const auto* off = line.listing("amd_iommu", "off")) return off;
  if (const auto* off = line.listing("acpi", "off")) return off;
  if (const auto* last = line.last("intel_iommu"); last != nullptr && last->lists("off")) return last;
  return nullptr;
}

}  // namespace

std::string firmware_switch(const Processor& processor) {
  if (processor.virtual_machine) {
    return "this host is a VM itself: its hypervisor has to give it an IOMMU (QEMU: -device intel-iommu, "
           "amd-iommu or virtio-iommu-pci)";
  }
  switch (processor.maker) {
    case Processor::Maker::intel:
      return "switch VT-d (Intel VT for Directed I/O) on in the firmware setup and reboot";
    case Processor::Maker::amd:
      return "switch the IOMMU (AMD-Vi) on in the firmware setup, enabled rather than auto, and reboot";
    case Processor::Maker::arm:
      return "switch the SMMU on in the firmware setup and reboot";
    case Processor::Maker::other:
      break;
  }
  return "switch the IOMMU (Intel VT-d, AMD-Vi, Arm SMMU) on in the firmware setup and reboot";
}

std::vector<std::string> iommu_tables(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const char* table : {"DMAR", "IVRS", "IORT", "VIOT"})
    if (std::ranges::find(names, table) != names.end()) out.emplace_back(table);
  return out;
}

bool is_described_by_device_tree(const HostFs& host) {
  return !host.exists(kIommuTables) && host.exists("sys/firmware/devicetree/base");
}

IommuState read_iommu_state(const HostFs& host) {
  IommuState state{.processor = {},
                   .tables = host.list(kIommuTables),
                   .units = names_in(host, kIommuUnits),
                   .groups = names_in(host, kIommuGroups),
                   .device_tree = is_described_by_device_tree(host)};
  // x86 names its maker as vendor_id, Arm as "CPU implementer". The first processor counts for all. If the
  // file cannot be read, the advice names all makers.
  const auto text = read_text(host, "proc/cpuinfo", kListBytes);
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    std::string_view line = cut(rest, '\n');
    if (line.empty()) break;
    const auto key = words_of(cut(line, ':'));
    const auto values = words_of(line);
    if (key.empty() || values.empty()) continue;
    using Maker = Processor::Maker;
    if (key[0] == "vendor_id" && values[0] == "GenuineIntel") state.processor.maker = Maker::intel;
    // Hygon's processors are AMD's design, IOMMU included.
    if (key[0] == "vendor_id" && (values[0] == "AuthenticAMD" || values[0] == "HygonGenuine"))
      state.processor.maker = Maker::amd;
    if (key.size() > 1 && key[0] == "CPU" && key[1] == "implementer") state.processor.maker = Maker::arm;
    if (key[0] == "flags" && std::ranges::find(values, "hypervisor") != values.end())
      state.processor.virtual_machine = true;
  }
  return state;
}

std::string cure_of_inactive_iommu(const IommuState& state, const Result<KernelCommandLine>& command_line) {
  if (command_line) {
    if (const auto* off = off_switch(*command_line))
      return fmt::format("take {} out of the kernel's command line and reboot", shown(off->text));
  }
  if (state.device_tree) {
    return "the device tree must name an SMMU for this PCI host (iommu-map), and the kernel have its driver: "
           "a "
           "firmware setup has no switch for it";
  }
  if (!state.tables) {
    return firmware_switch(state.processor) + (state.processor.maker == Processor::Maker::other ||
                                                       state.processor.maker == Processor::Maker::intel
                                                   ? "; on Intel, boot with intel_iommu=on as well"
                                                   : "");
  }
  const auto tables = iommu_tables(*state.tables);
  if (tables.empty()) return firmware_switch(state.processor);
  const auto has = [&](const char* table) { return std::ranges::find(tables, table) != tables.end(); };
  if (has("DMAR")) {
    if (!command_line || command_line->listing("intel_iommu", "on") == nullptr)
      return "boot with intel_iommu=on: many kernels leave Intel's IOMMU off by default";
    return "the kernel was asked to and did not: `dmesg` says why in its lines with DMAR; a firmware update "
           "may mend the table";
  }
  if (has("IVRS")) {
    return "the firmware announces it and the kernel did not take it: `dmesg` says why in its lines with "
           "AMD-Vi (the kernel needs CONFIG_AMD_IOMMU)";
  }
  if (has("IORT")) {
    return "IORT is there on boards without an SMMU too: switch the SMMU on in the firmware setup; the "
           "kernel needs CONFIG_ARM_SMMU_V3";
  }
  return "the IOMMU is a virtual one: the kernel needs CONFIG_VIRTIO_IOMMU, and its module early";
}

}  // namespace ferry::vfio
