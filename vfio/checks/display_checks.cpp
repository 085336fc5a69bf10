// SPDX-License-Identifier: Apache-2.0
// ABI: Documentation/fb/fbcon.rst (vtconsole);
// sys/class/graphics: drivers/video/fbdev/core/fbsysfs.c.
#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "vfio/checks/passthrough_checks.h"

namespace ferry::vfio::checks {
namespace {

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

}  // namespace

Check console_check(const HostFs& host, const PciFunction& function) {
  Check check{
      "console-framebuffer", function.address.text(),
      "a text console that draws on the GPU uses its driver, and may keep the driver from being unbound"};
  const std::filesystem::path directory = "sys/class/graphics";
  const auto names = names_in(host, directory);
  if (!names) return std::move(check).unknown(names.error().message, "run as root");
  std::vector<std::string> ours;
  std::string trouble;  // the first failed read
  for (const std::string& name : *names) {
    if (!name.starts_with("fb") || name == "fbcon") continue;
    const auto device = host.link_name(directory / name / "device");
    if (device && *device == function.address.text()) ours.push_back(name);
    if (!device && !is_gone(device.error()) && trouble.empty()) trouble = device.error().message;
  }
  if (ours.empty() && !trouble.empty()) return std::move(check).unknown(trouble, "run as root");
  if (ours.empty()) return std::move(check).passed("no framebuffer in /sys/class/graphics is this device's");

  const auto consoles = bound_consoles(host);
  if (!consoles) return std::move(check).unreadable(consoles.error());
  const std::string found = fmt::format("/sys/class/graphics/{} is this device's", fmt::join(ours, ", "));
  if (consoles->empty()) return std::move(check).passed(found + "; no console draws on framebuffers");
  return std::move(check).warned(fmt::format("{}; {} is 1", found, fmt::join(*consoles, ", ")),
                                 fmt::format("write 0 to {} before the GPU is bound", consoles->front()));
}

}  // namespace ferry::vfio::checks
