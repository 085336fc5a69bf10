// SPDX-License-Identifier: Apache-2.0
// ABI: Documentation/ABI/testing/sysfs-bus-pci (boot_vga); Documentation/fb/fbcon.rst (vtconsole);
// sys/class/graphics: drivers/video/fbdev/core/fbsysfs.c.
#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "vfio/checks/passthrough_checks.h"
#include "vfio/pci/memory_map.h"

namespace ferry::vfio::checks {
namespace {

Check boot_display_check(const HostFs& host, const PciFunction& function) {
  Check check{"boot-display", function.address.text(),
              "the firmware and the console draw on the boot display: the host's screen goes dark with it, "
              "and its ROM may be a shadowed copy"};
  const auto path = sysfs_path(function.address) / "boot_vga";
  const auto text = read_text(host, path);
  if (!text && is_gone(text.error()))
    return std::move(check).passed(fmt::format("there is no /{}: no VGA device", path.string()));
  if (!text) return std::move(check).unreadable(text.error());
  if (*text == "0") return std::move(check).passed(fmt::format("/{} is 0", path.string()));
  if (*text == "1") {
    return std::move(check).warned(
        fmt::format("/{} is 1", path.string()),
        "choose another primary display in the firmware setup, on a server the BMC's");
  }
  return std::move(check).unknown(fmt::format("/{} says '{}'", path.string(), shown(*text)));
}

Check firmware_framebuffer_check(const HostFs& host, const PciFunction& function, const DeviceFacts& facts) {
  constexpr const char* kPath = "proc/iomem";
  Check check{"firmware-framebuffer", function.address.text(),
              "a BAR that the firmware's framebuffer holds cannot be reserved for a VM"};
  const auto text = read_text(host, kPath, kListBytes);
  if (!text) return std::move(check).unreadable(text.error());
  const MemoryMap map = parse_memory_map(*text);
  if (map.hidden())
    return std::move(check).unknown(fmt::format("/{} hides all addresses", kPath), "run as root");
  if (!facts.bars) {
    const std::string trouble = trouble_with(facts, "resource");
    return std::move(check).unknown("the BARs are not known" + (trouble.empty() ? "" : ": " + trouble));
  }
  if (facts.bars->empty()) {
    return std::move(check).unknown(
        fmt::format("/{}/resource has no BAR", sysfs_path(function.address).string()), "see bars-assigned");
  }
  if (const auto found = firmware_framebuffer(map, *facts.bars)) {
    return std::move(check).warned(
        fmt::format("/{} has {} inside BAR {}", kPath, found->name, found->bar),
        function.pci_class() == PciClass::vga
            ? "Linux 6.0 and newer releases it when vfio-pci takes the device; before, boot with "
              "video=efifb:off"
            : "boot with initcall_blacklist=sysfb_init: vfio-pci releases it for VGA devices only");
  }
  if (map.claims.empty() || map.malformed > 0) {
    return std::move(check).unknown(
        fmt::format("/{} has {} lines that are no address range", kPath, map.malformed));
  }
  return std::move(check).passed(fmt::format("/{} has no firmware framebuffer inside its BARs", kPath));
}

struct Framebuffers {
  std::vector<std::string> names;  // of this function: "fb0"
  std::string trouble;             // the first failed read
};

Framebuffers framebuffers_of(const HostFs& host, const PciFunction& function) {
  const std::filesystem::path directory = "sys/class/graphics";
  Framebuffers out;
  const auto names = names_in(host, directory);
  if (!names) return {.names = {}, .trouble = names.error().message};
  for (const std::string& name : *names) {
    if (!name.starts_with("fb") || name == "fbcon") continue;
    const auto device = host.link_name(directory / name / "device");
    if (device && *device == function.address.text()) out.names.push_back(name);
    if (!device && !is_gone(device.error()) && out.trouble.empty()) out.trouble = device.error().message;
  }
  return out;
}

// The `bind` files of consoles that draw on framebuffers and are in use. fbcon does not name the framebuffer.
Result<std::vector<std::string>> bound_consoles(const HostFs& host) {
  const std::filesystem::path directory = "sys/class/vtconsole";
  std::vector<std::string> out;
  const auto names = names_in(host, directory);
  if (!names) return fail(names.error());
  for (const std::string& name : *names) {
    const auto kind = read_text(host, directory / name / "name");
    if (!kind) return fail(kind.error());
    if (kind->find("frame buffer") == std::string::npos) continue;
    const auto bind = read_text(host, directory / name / "bind");
    if (!bind) return fail(bind.error());
    const auto path = "/" + (directory / name / "bind").string();
    if (*bind == "1") {
      out.push_back(path);
    } else if (*bind != "0") {
      return fail(Errc::malformed_host, fmt::format("{} says '{}'", path, shown(*bind)));
    }
  }
  return out;
}

Check console_check(const HostFs& host, const PciFunction& function) {
  Check check{
      "console-framebuffer", function.address.text(),
      "a text console that draws on the GPU uses its driver, and may keep the driver from being unbound"};
  const Framebuffers ours = framebuffers_of(host, function);
  if (ours.names.empty()) {
    if (!ours.trouble.empty()) return std::move(check).unknown(ours.trouble, "run as root");
    return std::move(check).passed("no framebuffer in /sys/class/graphics is this device's");
  }
  const auto consoles = bound_consoles(host);
  if (!consoles) return std::move(check).unreadable(consoles.error());
  const std::string found =
      fmt::format("/sys/class/graphics/{} is this device's", fmt::join(ours.names, ", "));
  if (consoles->empty()) return std::move(check).passed(found + "; no console draws on framebuffers");
  return std::move(check).warned(fmt::format("{}; {} is 1", found, fmt::join(*consoles, ", ")),
                                 fmt::format("write 0 to {} before the GPU is bound", consoles->front()));
}

}  // namespace

std::vector<Check> of_display(const HostFs& host, const PciFunction& function, const DeviceFacts& facts) {
  return {boot_display_check(host, function), firmware_framebuffer_check(host, function, facts),
          console_check(host, function)};
}

}  // namespace ferry::vfio::checks
