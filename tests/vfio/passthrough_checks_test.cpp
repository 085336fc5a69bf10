// SPDX-License-Identifier: Apache-2.0
#include "vfio/checks/passthrough_checks.h"

#include <algorithm>
#include <functional>
#include <ostream>

#include <gmock/gmock.h>

#include "tests/vfio/checked_host.h"

namespace ferry::vfio {
namespace {

using test::FakeKernel;
using test::kGpu;
using test::of_gpu;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A healthy host that something was done to, and the one check that must notice.
struct Machine {
  std::string name;
  std::function<void(FakeKernel&)> spoil;
  std::string id;
  std::string subject;
  Verdict verdict = Verdict::fail;
  std::string found;
  std::string fix;
};
void PrintTo(const Machine& row, std::ostream* out) {
  *out << row.name;
}

void no_iommu(FakeKernel& kernel) {
  kernel.remove("sys/class/iommu/dmar0");
  kernel.remove("sys/kernel/iommu_groups/41");
  kernel.remove(of_gpu("iommu_group"));
}
auto write(const std::string& path, const std::string& content) {
  return [=](FakeKernel& kernel) { kernel.file(path, content); };
}
auto write_gpu(const std::string& attribute, const std::string& content) {
  return write(of_gpu(attribute), content);
}
auto without(const std::string& path) {
  return [=](FakeKernel& kernel) { kernel.remove(path); };
}
auto remove_gpu(const std::string& attribute) {
  return without(of_gpu(attribute));
}
auto below(const std::string& way) {
  return [=](FakeKernel& kernel) { put_below(kernel, way); };
}
void remove_disk(FakeKernel& kernel) {
  kernel.remove_function("0000:66:00.0");
}
void make_3d_controller(FakeKernel& kernel) {
  kernel.overwrite_id(kGpu, "class", "0x030200\n");
}
void load_vfio_pci(FakeKernel& kernel) {
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
}
/// Makes the changes in this order.
template <typename... Changes>
auto all(Changes... changes) {
  return [=](FakeKernel& kernel) { (changes(kernel), ...); };
}
constexpr const char* kArmCpu = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x4e\n";

void make_arm(FakeKernel& kernel) {
  kernel.file("proc/cpuinfo", kArmCpu);
  kernel.file("proc/cmdline", "console=ttyAMA0\n");
  kernel.remove("sys/firmware/acpi/tables/DMAR");
  kernel.file("sys/firmware/acpi/tables/IORT", "");
  kernel.remove("sys/class/iommu/dmar0");
  kernel.directory("sys/class/iommu/smmu3.0x0000000005000000");
  kernel.file("proc/interrupts", "  33:   0  ITS-PCI-MSIX-0000:65:00.0  0 Edge  nvme0q0\n");
}
/// `resource` with a BAR 1 of 256 MiB.
std::string small_bar1(const std::string& start, const std::string& end) {
  return "0xf6000000 0xf6ffffff 0x40200\n0x" + start + " 0x" + end +
         " 0x14220c\n0x0 0x0 0x0\n0x4400000000 0x4401ffffff 0x14220c\n0x0 0x0 0x0\n0x0 0x0 0x0\n"
         "0xf7000000 0xf707ffff 0x46200\n";
}

std::vector<Machine> machines() {
  const std::string host = kHostSubject;
  using enum Verdict;
  return {
      {"IntelWithoutTheParameter", all(no_iommu, write("proc/cmdline", "quiet\n")), "iommu-active", host,
       fail, "0 IOMMUs in /sys/class/iommu, 0 groups", "boot with intel_iommu=on"},
      {"IntelThatWasAskedAndDidNot", no_iommu, "iommu-active", host, fail, "/proc/cmdline has intel_iommu=on",
       "dmesg"},
      {"IntelSwitchedOffLast", all(no_iommu, write("proc/cmdline", "intel_iommu=on,sm_on intel_iommu=off\n")),
       "iommu-active", host, fail, "", "take intel_iommu=off out"},
      {"SwitchedOffForAll", all(no_iommu, write("proc/cmdline", "intel_iommu=on iommu=soft,off\n")),
       "iommu-active", host, fail, "", "take iommu=soft,off out"},
      {"IntelOffInTheFirmware", all(no_iommu, without("sys/firmware/acpi/tables/DMAR")), "iommu-active", host,
       fail, "", "switch VT-d"},
      {"AmdOffInTheFirmware",
       all(no_iommu, write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n"),
           without("sys/firmware/acpi/tables/DMAR")),
       "firmware-iommu-table", host, fail, "none of DMAR, IVRS, IORT, VIOT", "AMD-Vi"},
      {"AmdAnnouncedAndNotTaken",
       all(no_iommu, without("sys/firmware/acpi/tables/DMAR"), write("sys/firmware/acpi/tables/IVRS", "")),
       "iommu-active", host, fail, "", "AMD-Vi"},
      {"VirtualMachineWithoutAnIommu",
       all(no_iommu, without("sys/firmware/acpi/tables/DMAR"),
           write("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t: fpu hypervisor lm\n")),
       "iommu-active", host, fail, "", "its hypervisor has to give it an IOMMU"},
      {"TableMissingButActive", without("sys/firmware/acpi/tables/DMAR"), "firmware-iommu-table", host, pass,
       "active all the same", ""},
      {"DeviceTree",
       [](FakeKernel& kernel) {
         kernel.remove("sys/firmware/acpi");
         kernel.directory("sys/firmware/devicetree/base");
       },
       "firmware-iommu-table", host, unknown, "device tree", ""},
      {"GroupsWithoutAnIommu", without("sys/class/iommu/dmar0"), "iommu-active", host, unknown,
       "0 IOMMUs in /sys/class/iommu, 1 group in", "vfio-noiommu"},
      {"ArmWithSmmu", make_arm, "iommu-active", host, pass, "1 IOMMU in /sys/class/iommu", ""},
      {"ArmInterrupts", make_arm, "interrupt-remapping", host, pass, "ITS-PCI-MSIX", ""},
      {"ArmCoherencyNotSeenYet", make_arm, "cache-coherency", host, unknown, "no file says it", ""},
      {"ArmSmmuOff", all(no_iommu, make_arm, without("sys/class/iommu")), "iommu-active", host, fail, "",
       "SMMU"},
      {"NoIommuMode", write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n"), "noiommu-mode",
       host, fail, "enable_unsafe_noiommu_mode is Y", "write N"},
      {"NoIommuModeAndTheGroup", write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n"),
       "in-iommu-group", kGpu, fail, "isolates nothing", "enable_unsafe_noiommu_mode"},
      {"VfioNotLoaded", without("sys/module/vfio"), "noiommu-mode", host, pass, "there is no", ""},
      {"InterruptsNotRemapped", write("proc/interrupts", "  1:   9  IO-APIC    1-edge   IR-eye\n"),
       "interrupt-remapping", host, unknown, "names no chip that remaps", "dmesg"},
      {"UnsafeInterrupts", write("sys/module/iommufd/parameters/allow_unsafe_interrupts", "Y\n"),
       "unsafe-interrupts", host, warn, "/sys/module/iommufd/parameters/allow_unsafe_interrupts is Y",
       "allow_unsafe_interrupts"},
      {"AcsOverride", write("proc/cmdline", "pcie_acs_override=downstream,multifunction\n"), "acs-override",
       host, warn, "pcie_acs_override=downstream", "take it out"},
      {"AcsRedirectionDisabled", write("proc/cmdline", "pci=noaer,disable_acs_redir=pci:8086:1234\n"),
       "acs-override", host, pass, "disable_acs_redir=pci:8086:1234: it sets ACS bits", ""},
      {"AcsBitsOnByCommandLine", write("proc/cmdline", "pci=config_acs=1111101@0000:00:01.0\n"),
       "acs-override", host, pass, "config_acs=1111101@0000:00:01.0: it sets ACS bits", ""},
      {"AcsOverrideBesideBits", write("proc/cmdline", "pci=config_acs=1x1@a pcie_acs_override=downstream\n"),
       "acs-override", host, warn, "/proc/cmdline has pcie_acs_override=downstream", "take it out"},
      {"KernelOfRhel9",
       all(write("proc/sys/kernel/osrelease", "5.14.0-687.el9.x86_64\n"), remove_gpu("vfio-dev")),
       "kernel-release", host, warn, "Linux 5.14.0-687.el9.x86_64: a function on another vfio driver",
       "video=efifb:off"},
      {"KernelBeforeVfioDev", write("proc/sys/kernel/osrelease", "6.0.12\n"), "kernel-release", host, warn,
       "Linux 6.0.12: a function", "Linux 6.1 or newer"},
      {"KernelOfTwoDigits", write("proc/sys/kernel/osrelease", "6.12.0-55.el10\n"), "kernel-release", host,
       pass, "Linux 6.12.0-55.el10", ""},
      {"KernelOfANewMajor", write("proc/sys/kernel/osrelease", "7.0\n"), "kernel-release", host, pass,
       "Linux 7.0", ""},
      {"KernelOfNoNumber", write("proc/sys/kernel/osrelease", "mainline\n"), "kernel-release", host, unknown,
       "mainline", ""},
      {"LockedDown", write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"),
       "kernel-lockdown", host, warn, "/sys/kernel/security/lockdown is integrity", "sign"},
      {"NoLockdown",
       all(without("sys/kernel/security/lockdown"), write("sys/kernel/security/lsm", "capability,apparmor")),
       "kernel-lockdown", host, pass, "cannot be locked down", ""},
      {"SecurityfsNotMounted", without("sys/kernel/security"), "kernel-lockdown", host, unknown,
       "not to be mounted", ""},
      {"ModulesOfAnotherKernel", without(kModules), "vfio-pci-available", host, fail,
       "there is no /lib/modules/6.1.0-42-amd64", "reboot into the kernel that is installed"},
      {"ModulesOfAnotherKernelAndVfioLoaded", all(without(kModules), load_vfio_pci), "vfio-pci-available",
       host, warn, "/sys/bus/pci/drivers/vfio-pci is there", "reboot"},
      {"VfioPciLoaded", load_vfio_pci, "vfio-pci-available", host, pass, "/sys/bus/pci/drivers/vfio-pci", ""},
      {"VfioPciBuiltIn", write(kModules + "/modules.builtin", "kernel/drivers/vfio/pci/vfio-pci.ko\n"),
       "vfio-pci-available", host, pass, "modules.builtin", ""},
      {"VfioPciPacked",
       all(write(kModules + "/modules.dep", "/" + kModules + "/kernel/vfio-pci.ko.zst: \n"),
           write(kModules + "/kernel/vfio-pci.ko.zst", "")),
       "vfio-pci-available", host, pass, "vfio-pci.ko.zst can be loaded", ""},
      {"VfioPciNotInstalled", write(kModules + "/modules.dep", "kernel/fs/ext4.ko:\nkernel/x-vfio-pci.ko:\n"),
       "vfio-pci-available", host, fail, "has no vfio-pci.ko", "install the package"},
      {"VfioPciFileMissing", without(kModules + "/kernel/drivers/vfio/pci/vfio-pci.ko"), "vfio-pci-available",
       host, fail, "which is not there", "install"},
      {"VfioBlocked", write("etc/modprobe.d/no.conf", "install vfio-pci /bin/false\n"), "vfio-not-blocked",
       host, warn, "/etc/modprobe.d/no.conf:1: install vfio_pci /bin/false", "take the line out"},
      {"IdsOnTheCommandLine", write("proc/cmdline", "vfio-pci.ids=10de:2684,10de:22ba\n"), "vfio-pci-ids",
       host, warn, "/proc/cmdline: vfio-pci.ids=10de:2684", "initramfs"},
      {"IdsInModprobe",
       write("etc/modprobe.d/vfio.conf", "# ours\n\noptions vfio-pci disable_vga=1 \\\n ids=10de:2684\n"),
       "vfio-pci-ids", host, warn, "/etc/modprobe.d/vfio.conf:3: ids=10de:2684", ""},
      {"IdsInAHiddenFile",
       all(write("lib/modprobe.d/vfio.conf", "options vfio_pci ids=10de:2684\n"),
           write("etc/modprobe.d/vfio.conf", "")),
       "vfio-pci-ids", host, pass, "", ""},
      {"DriverctlHasTheGpu", write("etc/driverctl.d/pci-0000:65:00.0", "vfio-pci\n"), "driverctl-overrides",
       host, warn, "/etc/driverctl.d/pci-0000:65:00.0: vfio-pci", "one tool"},
      {"DriverctlHasAnother", write("etc/driverctl.d/pci-0000:02:00.0", "pci-stub\n"), "driverctl-overrides",
       host, pass, "has 1, none for", ""},
      {"OverrideOfAnotherDriver", write_gpu("driver_override", "vfio-pci\n"), "driver-override", host, warn,
       "driver_override of 0000:65:00.0 names vfio-pci, while nouveau is bound", "to clear it"},
      {"OverrideWithoutADriver",
       all(write("sys/bus/pci/devices/0000:65:00.0/driver_override", "vfio-pci\n"),
           without("sys/bus/pci/devices/0000:65:00.0/driver")),
       "driver-override", host, warn,
       "driver_override of 0000:65:00.0 names vfio-pci, and no driver is bound", "to clear it"},
      {"OverrideOfItsDriver", write_gpu("driver_override", "nouveau\n"), "driver-override", host, pass,
       "none in", ""},
      {"NoContainerNode", without("dev/vfio/vfio"), "vfio-container-node", host, fail,
       "neither /dev/vfio/vfio nor /dev/iommu", "mount the host's"},
      {"ContainerNodeToCome", all(without("dev/vfio"), without("sys/module/vfio")), "vfio-container-node",
       host, unknown, "is not loaded", "modprobe vfio"},
      {"ContainerNodeIsADirectory", [](FakeKernel& kernel) { kernel.directory("dev/iommu"); },
       "vfio-container-node", host, fail, "/dev/iommu is a directory", "remove it"},
      {"OffTheBus", write_gpu("config", std::string(64, '\xff')), "function-readable", kGpu, fail,
       "off the bus", "cold start"},
      {"AnotherUnreadable",
       [](FakeKernel& kernel) {
         kernel.add_function({.address = "0000:02:00.0", .ids = "10de:2204", .group = 42});
         kernel.overwrite_id("0000:02:00.0", "vendor", "?\n");
       },
       "pci-functions-readable", host, unknown, "0000:02:00.0: ", "root"},
      {"NoAccelerator", [](FakeKernel& kernel) { kernel.remove_function(kGpu); }, "accelerators-present",
       host, warn, "none of the functions", "lspci"},
      {"ShortConfig", write_gpu("config", "short"), "function-readable", kGpu, fail, "cannot be read",
       "dmesg"},
      {"RegionsOfAnotherForm", write("sys/kernel/iommu_groups/41/reserved_regions", "0x0 0x1\n"),
       "reserved-regions", kGpu, unknown, "reserved_regions: line 1 is no reserved region", ""},
      {"BridgeWithADriver",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "shpchp", .ids = {"class:0604"}});
         kernel.add_function({.address = "0000:64:00.0",
                              .ids = "8086:2030",
                              .class_code = 0x060400,
                              .group = 41,
                              .driver = "shpchp",
                              .header_type = 1});
       },
       "group-moves-whole", kGpu, fail, "blocked by the driver of bridge 0000:64:00.0", "unbind the driver"},
      {"NoGroup", remove_gpu("iommu_group"), "in-iommu-group", kGpu, fail,
       "no PCI function of this host is in", ""},
      {"NoIommu", no_iommu, "in-iommu-group", kGpu, fail, "no active IOMMU", ""},
      {"NoGroupAmongOthers",
       [](FakeKernel& kernel) {
         kernel.remove(of_gpu("iommu_group"));
         kernel.add_function({.address = "0000:02:00.0", .ids = "10de:2204", .group = 42});
       },
       "in-iommu-group", kGpu, fail, "is in no IOMMU group", "another slot"},
      {"NoGroupToJudge", remove_gpu("iommu_group"), "group-moves-whole", kGpu, unknown, "none to judge", ""},
      {"SharedGroup",
       [](FakeKernel& kernel) {
         kernel.add_driver({.name = "nvme", .ids = {"class:0108"}});
         kernel.add_function(test::kinds::kDisk, "0000:66:00.0", 41, "nvme");
       },
       "group-moves-whole", kGpu, fail, "0000:66:00.0 (144d:a80a, class 0108, driver nvme) shares the group",
       "another slot, or ACS"},
      {"SharedWithADriverlessDevice",
       [](FakeKernel& kernel) { kernel.add_function(test::kinds::kDisk, "0000:66:00.0", 41); },
       "group-moves-whole", kGpu, pass, "0000:65:00.0 can be bound; 0000:66:00.0 (144d", ""},
      {"TwoGpusInAGroup",
       [](FakeKernel& kernel) {
         kernel.add_function({.address = "0000:66:00.0", .group = 41, .driver = "nouveau"});
       },
       "group-moves-whole", kGpu, pass, "0000:65:00.0, 0000:66:00.0 can be bound", ""},
      {"VirtualFunctionsOn", write_gpu("virtfn0", ""), "virtual-functions-off", kGpu, fail,
       "has 1 virtual function enabled", "disable the virtual functions first"},
      {"VirtualFunctionsAreNoMatterOfTheGroup", write_gpu("virtfn0", ""), "group-moves-whole", kGpu, pass,
       "can be bound", ""},
      {"BootDisplay", write_gpu("boot_vga", "1\n"), "boot-display", kGpu, warn, "boot display", "primary"},
      {"NoVgaDevice", remove_gpu("boot_vga"), "boot-display", kGpu, pass, "boot_vga is not 1", ""},
      {"FirmwareFramebuffer",
       write("proc/iomem", "4000000000-4401ffffff : PCI Bus\n  4000000000-40007fffff : BOOTFB\n"),
       "firmware-framebuffer", kGpu, warn, "BOOTFB in BAR 1", "Linux 6.0"},
      {"FirmwareFramebufferOfA3dController",
       all(make_3d_controller, write("proc/iomem", "4000000000-40007fffff : efifb\n")),
       "firmware-framebuffer", kGpu, warn, "efifb in BAR 1", "initcall_blacklist=sysfb_init"},
      {"FirmwareFramebufferElsewhere", write("proc/iomem", "80000000-807fffff : BOOTFB\n"),
       "firmware-framebuffer", kGpu, pass, "no firmware framebuffer", ""},
      {"AddressesHidden",
       write("proc/iomem", "00000000-00000000 : System RAM\n  00000000-00000000 : BOOTFB\n"),
       "firmware-framebuffer", kGpu, unknown, "hides all addresses", "root"},
      {"ConsoleOnTheGpu", give_framebuffer, "console-framebuffer", kGpu, warn,
       "/sys/class/graphics/fb0 is this device's; /sys/class/vtconsole/vtcon1/bind is 1", "write 0 to"},
      {"FramebufferWithoutConsole", all(give_framebuffer, write("sys/class/vtconsole/vtcon1/bind", "0\n")),
       "console-framebuffer", kGpu, pass, "no console draws", ""},
      {"ConsoleOnAnother",
       [](FakeKernel& kernel) {
         give_framebuffer(kernel);
         kernel.link(of_gpu("graphics/fb0/device"), "../../../efi-framebuffer.0");
       },
       "console-framebuffer", kGpu, pass, "is this device's", ""},
      {"NoReset", all(remove_gpu("reset_method"), remove_gpu("reset")), "reset-method", kGpu, warn,
       "knows no way", "cold start"},
      {"ResetSwitchedOff", write_gpu("reset_method", "\n"), "reset-method", kGpu, warn, "is empty",
       "write `default`"},
      {"ResetOfAnOldKernel", remove_gpu("reset_method"), "reset-method", kGpu, pass, "/reset is there", ""},
      {"Asleep", write_gpu("power_state", "D3hot\n"), "power-state", kGpu, pass, "D3hot", ""},
      {"AsleepByVfioPci",
       [](FakeKernel& kernel) {
         kernel.file(of_gpu("power_state"), "D3hot\n");
         kernel.file("sys/module/vfio_pci/parameters/disable_idle_d3", "N\n");
         kernel.link(of_gpu("driver"), "../../../../bus/pci/drivers/vfio-pci");
       },
       "power-state", kGpu, pass, "options vfio-pci disable_idle_d3=1 keeps devices awake", ""},
      {"WithoutPower", write_gpu("power_state", "D3cold\n"), "power-state", kGpu, warn, "D3cold",
       "d3cold_allowed"},
      {"PowerError", write_gpu("power_state", "error\n"), "power-state", kGpu, fail, "error", "cold start"},
      {"PowerUnknownToTheKernel", write_gpu("power_state", "unknown\n"), "power-state", kGpu, unknown,
       "says 'unknown'", ""},
      {"PowerOfAnOldKernel", remove_gpu("power_state"), "power-state", kGpu, unknown, "there is no", ""},
      {"Bar1OfZeros",
       write_gpu("resource",
                 "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n0x0 0x0 0x0\n0x0 0x0 0x0\n"
                 "0x0000004400000000 0x0000004401ffffff 0x000000000014220c\n0x0 0x0 0x0\n"),
       "bars-assigned", kGpu, fail, "no address for BAR 1 (64-bit)", "Above 4G Decoding"},
      {"Bar1WithoutAddress",
       write_gpu("resource",
                 "0xf6000000 0xf6ffffff 0x40200\n0x0 0x3ffffffff 0x2014220c\n0x0 0x0 0x0\n"
                 "0x4400000000 0x4401ffffff 0x14220c\n"),
       "bars-assigned", kGpu, fail, "no address for BAR 1", "Above 4G Decoding"},
      {"NoPortsAreNoMatter",
       write_gpu("resource",
                 "0xf6000000 0xf6ffffff 0x40200\n0x4000000000 0x43ffffffff 0x14220c\n0x0 0x0 0x0\n"
                 "0x4400000000 0x4401ffffff 0x14220c\n0x0 0x0 0x0\n0x0 0x7f 0x20040101\n"),
       "bars-assigned", kGpu, pass, "4 BARs", ""},
      {"AloneInItsGroup", [](FakeKernel&) {}, "acs-isolation", kGpu, pass,
       "iommu_groups/41 has nothing that is not part of the card", ""},
      {"AcsOffButAlone", all(shared_below(test::kRootPort, {}), remove_disk), "acs-isolation", kGpu, pass,
       "not part of the card", ""},
      {"AcsOfAFunctionOfTheCardIsNoMatter",
       [](FakeKernel& kernel) {
         shared_below(test::kRootPort, {})(kernel);
         kernel.remove_function("0000:66:00.0");
         kernel.add_function(test::kinds::kAudio, "0000:65:00.1", 41);
       },
       "acs-isolation", kGpu, pass, "not part of the card", ""},
      {"AcsBitsOff", shared_below(test::kRootPort, test::Acs{.does = 0x11}), "acs-isolation", kGpu, warn,
       "/sys/kernel/iommu_groups/41 has 0000:66:00.0 too; bridge 0000:00:01.0: its ACS control register, at "
       "0x14e of "
       "/sys/bus/pci/devices/0000:00:01.0/config, is 0x0011, without P2P request redirect (0x0004), P2P "
       "completion "
       "redirect (0x0008)",
       "switch ACS on in the firmware setup"},
      {"NoAcs", shared_below(test::kDownstreamPort, {}), "acs-isolation", kGpu, warn,
       "bridge 0000:00:01.0: no ACS capability (0x000d) in", "another slot, below a port that has ACS"},
      {"NoExtendedSpace", shared_below(test::kRootPort, {}, 256), "acs-isolation", kGpu, warn,
       "no extended capabilities, and so no ACS", "another slot"},
      {"ConventionalBridge", shared_below({}, {}), "acs-isolation", kGpu, warn,
       "bridge 0000:00:01.0: conventional PCI", "is one group"},
      {"TwoBridgesOfOneKind",
       [](FakeKernel& kernel) {
         shared_below(test::kRootPort, test::Acs{.does = 0x1d})(kernel);
         add_bridge(kernel, kSwitchPort, test::bridge_space(test::kDownstreamPort, {}));
         put_below(kernel, "pci0000:00/0000:00:01.0/0000:64:00.0");
       },
       "acs-isolation", kGpu, warn, "too; bridge 0000:64:00.0: no ACS", "another slot"},
      {"AcsOnAllTheWay", shared_below(test::kRootPort, test::Acs{.does = 0x1d}), "acs-isolation", kGpu,
       unknown, "0000:66:00.0 too; by their ACS registers the bridges above it keep devices apart",
       "another slot"},
      {"SharedOnTheRootBus",
       [](FakeKernel& kernel) { kernel.add_function(test::kinds::kDisk, "0000:66:00.0", 41); },
       "acs-isolation", kGpu, unknown, "there is no bridge above it", "another slot"},
      {"BridgeBehindVmdAlone",
       all(shared_below(test::kRootPort, {}), below("pci0000:00/0000:00:01.0/pci10000:00")), "acs-isolation",
       kGpu, unknown, "there is no bridge above it", "another slot"},
      {"BridgeAsOtherUsersSeeIt", shared_below(test::kRootPort, test::Acs{.does = 0}, 64), "acs-isolation",
       kGpu, unknown, "only 64 bytes; the rest is root's to read", "run as root"},
      {"BridgeThatIsNotThere", all(shared_below(test::kRootPort, {}), below("pci0000:00/0000:00:03.0")),
       "acs-isolation", kGpu, unknown, "0000:00:03.0/config", "run as root"},
      {"BridgeWithACircle",
       [](FakeKernel& kernel) {
         shared_below(test::kRootPort, {})(kernel);
         std::string config = test::bridge_space(test::kRootPort, {});
         test::put32(config, 0x100, 0x10020001U);
         kernel.file("sys/devices/pci0000:00/0000:00:01.0/config", config);
       },
       "acs-isolation", kGpu, unknown, "the extended capability at 0x100 comes twice", ""},
      {"AcsWithoutAGroup", remove_gpu("iommu_group"), "acs-isolation", kGpu, unknown, "none to judge",
       "iommu-active"},
      {"AcsInTheUnsafeMode", write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n"),
       "acs-isolation", kGpu, unknown, "none to judge", ""},
      {"LargestBar", [](FakeKernel&) {}, "bar-size", kGpu, pass,
       "BAR 1 has 16 GiB, the most that it can have; a guest needs a 64-bit window for the 16 GiB of BAR 1",
       ""},
      {"LargestBarInAGuest", [](FakeKernel&) {}, "bar-size", kGpu, pass,
       "for each such GPU of the VM, 32768 MiB in QEMU's option -fw_cfg name=opt/ovmf/X-PciMmio64Mb", ""},
      {"BarBelow4GiB", write_gpu("resource", small_bar1("c0000000", "cfffffff")), "bar-size", kGpu, warn,
       "BAR 1 has 256 MiB, below 4 GiB, and by /sys/bus/pci/devices/0000:65:00.0/resource1_resize could have "
       "16 GiB",
       "write 14 to /sys/bus/pci/devices/0000:65:00.0/resource1_resize while no driver"},
      {"BarWithTooSmallAWindow",
       [](FakeKernel& kernel) {
         std::string config = test::bridge_space(test::kRootPort, {});
         test::put16(config, 0x24, 0x0001);
         test::put16(config, 0x26, 0x1ff1);
         test::put32(config, 0x28, 0x40);
         test::put32(config, 0x2c, 0x40);
         add_bridge(kernel, kPort, config);
         put_below(kernel, "pci0000:00/0000:00:01.0");
         kernel.file(of_gpu("resource"), small_bar1("4000000000", "400fffffff"));
       },
       "bar-size", kGpu, warn,
       "could have 16 GiB, and the window of bridge 0000:00:01.0 above it has 512 MiB",
       "Resizable BAR and Above 4G Decoding"},
      {"BarThatIsInAnotherWindow",
       [](FakeKernel& kernel) {
         add_bridge(kernel, kPort, test::bridge_space(test::kRootPort, {}));
         put_below(kernel, "pci0000:00/0000:00:01.0");
         kernel.file(of_gpu("resource"), small_bar1("4000000000", "400fffffff"));
       },
       "bar-size", kGpu, warn, "BAR 1 has 256 MiB and by", "write 14"},
      {"ResizableBarWithoutAddress",
       write_gpu("resource", "0xf6000000 0xf6ffffff 0x40200\n0x0 0x3ffffffff 0x2014220c\n"), "bar-size", kGpu,
       fail,
       "BAR 1 has no address; by /sys/bus/pci/devices/0000:65:00.0/resource1_resize it could have 256 MiB to "
       "16 GiB",
       "write 8 to"},
      {"ResizableBarOfZeros", write_gpu("resource", "0xf6000000 0xf6ffffff 0x40200\n0x0 0x0 0x0\n"),
       "bar-size", kGpu, fail, "BAR 1 has no address", "see bars-assigned"},
      {"BarsThatCannotAllBeRead", write_gpu("resource", "0xf6000000 0xf6ffffff 0x40200\nnonsense\n"),
       "bar-size", kGpu, unknown, "resource", ""},
      {"BarOfASizeThatItCannotHave", write_gpu("resource1_resize", "0000000000003f00\n"), "bar-size", kGpu,
       unknown, "BAR 1 has 16 GiB, which", ""},
      {"BarOfNoSize", write_gpu("resource1_resize", "0\n"), "bar-size", kGpu, unknown, "names no size", ""},
      {"BarOfMoreThanThereIs", write_gpu("resource1_resize", "8000000000007f00\n"), "bar-size", kGpu, unknown,
       "names no size that a BAR can have", ""},
      {"FixedBars", remove_gpu("resource1_resize"), "bar-size", kGpu, pass,
       "resourceN_resize: no size can be chosen; a guest needs a 64-bit window for the 16 GiB", ""},
      {"SmallFixedBars",
       all(remove_gpu("resource1_resize"), write_gpu("resource", "0xf6000000 0xf6ffffff 0x40200\n")),
       "bar-size", kGpu, pass, "no size can be chosen", ""},
      {"Rom", [](FakeKernel&) {}, "option-rom", kGpu, pass, "/rom has 512 KiB at 0xf7000000", ""},
      {"RomIsACopy",
       write_gpu(
           "resource",
           "0xf6000000 0xf6ffffff 0x40200\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n"
           "0xc0000 0xdffff 0x212\n"),
       "option-rom", kGpu, warn, "is the copy in RAM, at 0xc0000, that the firmware has run",
       "<rom file='FILE'/>"},
      {"NoRom", remove_gpu("rom"), "option-rom", kGpu, warn, "there is no /", "the guest's driver alone"},
      {"RomWithoutAddress",
       write_gpu(
           "resource",
           "0xf6000000 0xf6ffffff 0x40200\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n"
           "0x0 0x7ffff 0x20046200\n"),
       "option-rom", kGpu, unknown, "has no address for", "write 1 to it, read it, write 0"},
      {"RomOfNoRange", write_gpu("resource", "0xf6000000 0xf6ffffff 0x40200\n"), "option-rom", kGpu, unknown,
       "has no address for", ""},
      {"RomOfA3dController", all(make_3d_controller, remove_gpu("rom")), "option-rom", kGpu, pass,
       "class is 0x030200: no VGA device", ""},
      {"SlowLink", write_gpu("current_link_speed", "2.5 GT/s PCIe\n"), "pcie-link", kGpu, warn,
       "2.5 GT/s PCIe x16 of 16.0 GT/s PCIe x16", "under load"},
      {"NarrowLink", write_gpu("current_link_width", "8\n"), "pcie-link", kGpu, warn, "x8 of", "more lanes"},
      {"LinkUnknown", write_gpu("current_link_speed", "Unknown\n"), "pcie-link", kGpu, unknown,
       "do not all say", ""},
      {"NoNode", write_gpu("numa_node", "-1\n"), "numa-node", kGpu, unknown,
       "/sys/devices/system/node/online", ""},
      {"NoNodeOfOne", all(write_gpu("numa_node", "-1\n"), write("sys/devices/system/node/online", "0\n")),
       "numa-node", kGpu, pass, "only one", ""},
  };
}

class PassthroughMachine : public testing::TestWithParam<Machine> {};

TEST_P(PassthroughMachine, IsJudged) {
  FakeKernel kernel;
  test::build_healthy(kernel);
  GetParam().spoil(kernel);
  const auto checks = checks_of(kernel);
  const Check* check = find(checks, GetParam().id, GetParam().subject);
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(text(check->verdict), text(GetParam().verdict)) << check->found;
  EXPECT_THAT(check->found, HasSubstr(GetParam().found));
  EXPECT_THAT(check->fix, HasSubstr(GetParam().fix));
  EXPECT_THAT(kernel.changes(), IsEmpty());
}
INSTANTIATE_TEST_SUITE_P(Table, PassthroughMachine, testing::ValuesIn(machines()),
                         [](const auto& row) { return row.param.name; });

TEST(PassthroughChecks, PassOnAHealthyHostAndSayWhereTheyLooked) {
  FakeKernel kernel;
  test::build_healthy(kernel);
  const auto checks = checks_of(kernel);
  EXPECT_EQ(checks.size(), 37U);
  for (const Check& check : checks) {
    EXPECT_EQ(text(check.verdict), "pass") << check.id << ": " << check.found;
    EXPECT_THAT(check.found, HasSubstr("/")) << check.id;
    EXPECT_THAT(check.why, Not(IsEmpty())) << check.id;
    EXPECT_THAT(check.fix, IsEmpty()) << check.id;
  }
}

TEST(PassthroughChecks, ComeHostFirstThenByAccelerator) {
  FakeKernel kernel;
  test::build_healthy(kernel);
  kernel.add_function({.address = "0000:0a:00.0", .group = 7, .driver = "nouveau"});
  std::vector<std::string> subjects;
  for (const Check& check : checks_of(kernel)) {
    if (subjects.empty() || subjects.back() != check.subject) subjects.push_back(check.subject);
  }
  EXPECT_THAT(subjects, testing::ElementsAre("host", "0000:0a:00.0", kGpu));
}

TEST(PassthroughChecks, NameEachCheckOnceASubject) {
  FakeKernel kernel;
  test::build_healthy(kernel);
  make_arm(kernel);
  std::set<std::pair<std::string, std::string>> seen;
  for (const Check& check : checks_of(kernel)) {
    EXPECT_TRUE(seen.emplace(check.id, check.subject).second) << check.id;
    EXPECT_EQ(check.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos)
        << check.id;
  }
}

TEST(PassthroughChecks, SeeCoherencyByADeviceThatVfioHasTaken) {
  FakeKernel kernel;
  test::build_healthy(kernel);
  make_arm(kernel);
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  kernel.add_function(
      {.address = "0000:0a:00.0", .group = 7, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  const auto checks = checks_of(kernel);
  EXPECT_EQ(find(checks, "cache-coherency", kHostSubject)->verdict, Verdict::pass);
}

TEST(PassthroughChecks, AnswerOnAHostThatShowsNothing) {
  FakeKernel kernel;
  for (const Check& check : checks_of(kernel)) EXPECT_THAT(check.found, Not(IsEmpty())) << check.id;
}

}  // namespace
}  // namespace ferry::vfio
