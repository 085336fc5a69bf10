// SPDX-License-Identifier: Apache-2.0
// ABI: modules.dep(5), modprobe.d(5), driverctl(8); Documentation/driver-api/vfio.rst;
// security/lockdown/lockdown.c for the file lockdown.
#include <algorithm>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "vfio/bind/driver_modules.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/pci/kernel_options.h"

namespace ferry::vfio::checks {
namespace {

// A distribution may have brought vfio-dev into an older kernel, which a function on vfio then shows.
Check release_check(const HostFs& host, const Inventory& inventory) {
  constexpr const char* kPath = "proc/sys/kernel/osrelease";
  Check check{"kernel-release", kHostSubject,
              "from Linux 6.1 on sysfs shows each function that a vfio driver has, and from 6.0 on vfio-pci "
              "takes the firmware's framebuffer from a VGA device"};
  const auto release = read_text(host, kPath);
  if (!release) return std::move(check).unreadable(release.error());
  std::string_view rest = *release;
  const auto major = whole_number<unsigned>(cut(rest, '.'));
  const auto minor = whole_number<unsigned>(rest.substr(0, rest.find_first_not_of("0123456789")));
  if (!major || !minor) return std::move(check).unknown(fmt::format("/{} says '{}'", kPath, shown(*release)));
  const std::string linux = fmt::format("/{}: Linux {}", kPath, shown(*release));
  if (std::pair(*major, *minor) >= std::pair(6U, 1U)) return std::move(check).passed(linux);
  const bool keeps_framebuffer = *major < 6;
  const bool shows_vfio = std::ranges::any_of(
      inventory.functions, [](const auto& entry) { return !entry.second.vfio_devices.empty(); });
  if (shows_vfio && !keeps_framebuffer)
    return std::move(check).passed(linux + ", which shows functions on vfio all the same");
  return std::move(check).warned(
      fmt::format(
          "{}{}{}", linux,
          shows_vfio ? "" : ": a function on another vfio driver than vfio-pci counts as the host's",
          keeps_framebuffer ? "; the firmware's framebuffer stays on a VGA device that vfio-pci has" : ""),
      fmt::format(
          "Linux 6.1 or newer{}",
          keeps_framebuffer ? "; until then boot with video=efifb:off if the GPU has the screen" : ""));
}

Check lockdown_check(const HostFs& host) {
  constexpr const char* kPath = "sys/kernel/security/lockdown";
  Check check{"kernel-lockdown", kHostSubject,
              "a locked-down kernel loads signed modules only (EKEYREJECTED) and refuses raw access to "
              "PCI config space and BARs; binding drivers stays allowed"};
  const auto text = read_text(host, kPath);
  if (!text && !is_gone(text.error())) return std::move(check).unreadable(text.error());
  if (!text) {
    // securityfs has `lsm` whenever it is mounted.
    if (host.exists("sys/kernel/security/lsm")) {
      return std::move(check).passed(
          fmt::format("there is no /{}: this kernel cannot be locked down", kPath));
    }
    return std::move(check).unknown(
        fmt::format("there is no /{}; securityfs seems not to be mounted", kPath));
  }
  for (const auto word : words_of(*text)) {
    if (word == "[none]") return std::move(check).passed(fmt::format("/{} is none", kPath));
    if (word == "[integrity]" || word == "[confidentiality]") {
      return std::move(check).warned(fmt::format("/{} is {}", kPath, word.substr(1, word.size() - 2)),
                                     "nothing, if all modules are signed for this kernel; else sign NVIDIA's "
                                     "and enrol the key, or switch Secure Boot off in the firmware setup");
    }
  }
  return std::move(check).unknown(fmt::format("/{} says '{}'", kPath, shown(*text)));
}

Check vfio_pci_check(const HostFs& host, const Inventory& inventory) {
  constexpr const char* kModule = "vfio_pci";
  constexpr const char* kReboot =
      "reboot into the kernel that is installed, or install the modules of the one that runs";
  Check check{"vfio-pci-available", kHostSubject,
              "a device leaves the host through the driver vfio-pci or one made for its model"};
  const auto release = read_text(host, "proc/sys/kernel/osrelease");
  if (inventory.drivers.contains("vfio-pci")) {
    const std::string found = "/sys/bus/pci/drivers/vfio-pci is there";
    if (release && !release->empty() && !host.exists("lib/modules/" + *release)) {
      return std::move(check).warned(
          fmt::format("{}, /lib/modules/{} is not: nothing more can be loaded", found, shown(*release)),
          kReboot);
    }
    return std::move(check).passed(found);
  }
  if (!release) return std::move(check).unknown(release.error().message);
  if (release->empty()) return std::move(check).unknown("/proc/sys/kernel/osrelease is empty");
  const std::filesystem::path directory = "lib/modules/" + *release;
  const auto names = host.list(directory);
  if (!names && !is_gone(names.error())) return std::move(check).unknown(names.error().message);
  if (!names) {
    return std::move(check).failed(
        fmt::format("vfio-pci is not loaded, and there is no /{}", directory.string()), kReboot);
  }
  const auto builtin = read_text(host, directory / "modules.builtin", kListBytes);
  if (!builtin && !is_gone(builtin.error())) return std::move(check).unknown(builtin.error().message);
  if (builtin && path_of_module(*builtin, kModule))
    return std::move(check).passed(fmt::format("built in, says /{}/modules.builtin", directory.string()));
  const auto loadable = read_text(host, directory / "modules.dep", kListBytes);
  if (!loadable) return std::move(check).unknown(loadable.error().message, "run `depmod`");
  if (loadable->empty()) {
    return std::move(check).unknown(fmt::format("/{}/modules.dep is empty", directory.string()),
                                    "run `depmod`");
  }
  const auto module = path_of_module(*loadable, kModule);
  if (!module) {
    return std::move(check).failed(fmt::format("/{}/modules.dep has no vfio-pci.ko", directory.string()),
                                   "install the package with the rest of this kernel's modules, or a kernel "
                                   "with CONFIG_VFIO_PCI");
  }
  // Paths are relative to modules.dep's directory; old versions of depmod wrote them from the root.
  const std::filesystem::path listed = *module;
  const auto file = listed.is_absolute() ? listed.relative_path() : directory / listed;
  if (!host.exists(file)) {
    return std::move(check).failed(
        fmt::format("/{}/modules.dep names {}, which is not there", directory.string(), shown(*module)),
        "install this kernel's modules again");
  }
  return std::move(check).passed(fmt::format("/{} can be loaded", file.string()));
}

enum class Node { there, missing, directory };

// A careless bind mount of a missing node makes a directory.
Result<Node> find_node(const HostFs& host, const char* directory, const char* name) {
  const auto entries = host.entries(directory);
  if (!entries) {
    if (is_gone(entries.error())) return Node::missing;
    return fail(entries.error());
  }
  for (const DirectoryEntry& entry : *entries)
    if (entry.name == name) return entry.is_directory ? Node::directory : Node::there;
  return Node::missing;
}

Check nodes_check(const HostFs& host) {
  Check check{"vfio-container-node", kHostSubject,
              "a VM's process opens /dev/vfio/vfio or /dev/iommu before it gets any device"};
  const auto container = find_node(host, "dev/vfio", "vfio");
  if (!container) return std::move(check).unreadable(container.error());
  const auto iommufd = find_node(host, "dev", "iommu");
  if (!iommufd) return std::move(check).unreadable(iommufd.error());
  for (const auto& [node, name] :
       {std::pair(*container, "/dev/vfio/vfio"), std::pair(*iommufd, "/dev/iommu")}) {
    if (node == Node::directory) {
      return std::move(check).failed(
          fmt::format("{} is a directory", name),
          "remove it; a container mounts /dev/vfio as a whole, or the node once it is there");
    }
  }
  std::vector<std::string> there;
  if (*container == Node::there) there.emplace_back("/dev/vfio/vfio");
  if (*iommufd == Node::there) there.emplace_back("/dev/iommu");
  if (!there.empty()) return std::move(check).passed(fmt::format("{}", fmt::join(there, ", ")));
  if (host.exists("sys/module/vfio")) {
    return std::move(check).failed("neither /dev/vfio/vfio nor /dev/iommu is there, though vfio is loaded",
                                   "see that devtmpfs is mounted on /dev; in a container, mount the host's "
                                   "/dev/vfio");
  }
  return std::move(check).unknown(
      "neither /dev/vfio/vfio nor /dev/iommu is there; vfio, which makes them, is not loaded",
      "`modprobe vfio` makes the node, and so does the first `ferry vfio bind`");
}

Check ids_check(const ModprobeConfig& modprobe, const Result<KernelCommandLine>& command_line) {
  Check check{"vfio-pci-ids", kHostSubject,
              "vfio-pci then takes every device of that model, now and at each hot-plug: none of them "
              "can be given back to the host for good"};
  std::vector<std::string> said;
  if (command_line) {
    for (const KernelParameter& parameter : command_line->parameters())
      if (parameter.name == "vfio_pci.ids") said.push_back("/proc/cmdline: " + shown(parameter.text));
  }
  for (const ModprobeLine& line : modprobe.lines) {
    if (line.words.size() < 3 || line.words[0] != "options" || line.words[1] != "vfio_pci") continue;
    for (const std::string& option : line.words)
      if (option.starts_with("ids=")) said.push_back(fmt::format("{}: {}", line.where, shown(option)));
  }
  if (!said.empty()) {
    return std::move(check).warned(
        fmt::format("{}", fmt::join(said, "; ")),
        "take it out, also of the initramfs, and reboot; ferry binds single devices");
  }
  if (!command_line) return std::move(check).unknown(command_line.error().message);
  if (!modprobe.troubles.empty()) return std::move(check).unknown(modprobe.troubles.front(), "run as root");
  return std::move(check).passed(
      "neither /proc/cmdline nor /etc/modprobe.d or its like gives vfio-pci any ids");
}

// Finds lines like `install vfio-pci /bin/false`: modprobe then runs the command instead of loading.
Check install_check(const ModprobeConfig& modprobe) {
  Check check{"vfio-not-blocked", kHostSubject,
              "an install command is run in the module's place, often to keep it from loading"};
  for (const ModprobeLine& line : modprobe.lines) {
    if (line.words.size() > 2 && line.words[0] == "install" &&
        (line.words[1] == "vfio" || line.words[1] == "vfio_pci" || line.words[1] == "vfio_iommu_type1")) {
      return std::move(check).warned(
          fmt::format("{}: {}", line.where, shown(fmt::format("{}", fmt::join(line.words, " ")))),
          "take the line out unless it loads the module itself");
    }
  }
  if (!modprobe.troubles.empty()) return std::move(check).unknown(modprobe.troubles.front(), "run as root");
  return std::move(check).passed("no install command for vfio's modules in /etc/modprobe.d or its like");
}

// driverctl keeps a file for each device, "pci-0000:65:00.0", with the driver that the device is to have.
Check driverctl_check(const HostFs& host, const Inventory& inventory,
                      const std::vector<PciAddress>& accelerators) {
  constexpr const char* kPath = "etc/driverctl.d";
  constexpr std::string_view kBus = "pci-";
  Check check{"driverctl-overrides", kHostSubject,
              "driverctl sets these drivers at each boot; ferry recognises them and does not fight: what "
              "it gives back gets the override it had"};
  const auto names = names_in(host, kPath);
  if (!names) return std::move(check).unreadable(names.error());
  if (names->empty()) return std::move(check).passed(fmt::format("/{} has none", kPath));
  const auto units = concerned(inventory, accelerators);
  std::vector<std::string> ours;
  for (const std::string& name : *names) {
    if (!name.starts_with(kBus)) continue;
    const auto address = PciAddress::parse(std::string_view(name).substr(kBus.size()));
    if (!address || std::ranges::find(units, *address) == units.end()) continue;
    const auto driver = read_text(host, std::filesystem::path(kPath) / name);
    if (!driver) return std::move(check).unreadable(driver.error());
    ours.push_back(fmt::format("/{}/{}: {}", kPath, shown(name), shown(*driver)));
  }
  if (ours.empty()) {
    return std::move(check).passed(
        fmt::format("/{} has {}, none for an accelerator's group", kPath, names->size()));
  }
  return std::move(check).warned(
      fmt::format("{}", fmt::join(ours, "; ")),
      "let one tool decide: `driverctl unset-override` leaves the device to ferry alone");
}

Check override_check(const Inventory& inventory, const std::vector<PciAddress>& accelerators) {
  Check check{"driver-override", kHostSubject,
              "the kernel binds no other driver than the one that driver_override names: once unbound, a "
              "function gets its present driver back only after the override is cleared"};
  std::vector<std::string> differing;
  for (const PciAddress& address : concerned(inventory, accelerators)) {
    const PciFunction& function = *inventory.find(address);
    if (function.override_unread) {
      return std::move(check).unknown(fmt::format("driver_override of {} cannot be read", address.text()),
                                      "run as root");
    }
    if (auto text = override_of_another_driver(function)) differing.push_back(std::move(*text));
    if (!function.driver && function.driver_override)
      differing.push_back(fmt::format("driver_override of {} names {}, and no driver is bound",
                                      function.address.text(), *function.driver_override));
  }
  if (differing.empty())
    return std::move(check).passed("none in /sys/bus/pci/devices names another driver than the one bound");
  return std::move(check).warned(fmt::format("{}", fmt::join(differing, "; ")),
                                 "ferry keeps it and restores it at the unbind; to clear it: `echo > "
                                 "/sys/bus/pci/devices/ADDRESS/driver_override`");
}

}  // namespace

std::vector<Check> of_vfio_setup(const HostFs& host, const Inventory& inventory,
                                 const std::vector<PciAddress>& accelerators,
                                 const Result<KernelCommandLine>& command_line) {
  const ModprobeConfig modprobe = read_modprobe_config(host);
  return {release_check(host, inventory),
          lockdown_check(host),
          vfio_pci_check(host, inventory),
          install_check(modprobe),
          nodes_check(host),
          ids_check(modprobe, command_line),
          driverctl_check(host, inventory, accelerators),
          override_check(inventory, accelerators)};
}

}  // namespace ferry::vfio::checks
