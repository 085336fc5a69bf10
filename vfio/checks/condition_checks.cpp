// SPDX-License-Identifier: Apache-2.0
// ABI: Documentation/ABI/testing/sysfs-bus-pci, sysfs-devices-system-node (online: sysfs-devices-node);
// BAR registers: PCI Local Bus 3.0, 6.2.5.1.
#include <algorithm>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"
#include "vfio/checks/passthrough_checks.h"

namespace ferry::vfio::checks {
namespace {

Check reset_check(const PciFunction& function, const DeviceFacts& facts) {
  constexpr const char* kCure =
      "it works once: after a guest's crash a cold start of the host may be needed; a firmware update of the "
      "card may add a way";
  Check check{"reset-method", function.address.text(),
              "between two VMs only a reset clears what the first left in the device"};
  if (const auto trouble = trouble_with(facts, "reset_method"); !trouble.empty())
    return std::move(check).unknown(trouble, "run as root");
  if (!facts.reset.offered) return std::move(check).unknown("its directory cannot be read");
  const auto path = path_text(function, "reset_method");
  if (facts.reset.methods) {
    if (!facts.reset.methods->empty())
      return std::move(check).passed(fmt::format("{} has {}", path, fmt::join(*facts.reset.methods, ", ")));
    return std::move(check).warned(path + " is empty: the kernel knows no way, or is set to use none",
                                   fmt::format("write `default` to it; if it stays empty, {}", kCure));
  }
  if (*facts.reset.offered)
    return std::move(check).passed(fmt::format("{} is there", path_text(function, "reset")));
  return std::move(check).warned(fmt::format("neither {} nor reset is there: the kernel knows no way", path),
                                 kCure);
}

Check power_check(const HostFs& host, const PciFunction& function, const DeviceFacts& facts) {
  Check check{"power-state", function.address.text(),
              "a device without power does not answer, and some come back broken"};
  const auto path = path_text(function, "power_state");
  if (const auto trouble = trouble_with(facts, "power_state"); !trouble.empty())
    return std::move(check).unknown(trouble, "run as root");
  if (!facts.power.state) return std::move(check).unknown(fmt::format("there is no {}", path));
  const std::string& state = *facts.power.state;
  if (state == "D0" || state == "D1" || state == "D2")
    return std::move(check).passed(fmt::format("{} is {}", path, state));
  if (state == "D3hot") {
    const auto idles = host.read_attribute("sys/module/vfio_pci/parameters/disable_idle_d3");
    return std::move(check).passed(
        fmt::format("{} is D3hot: asleep while not in use{}", path,
                    idles && *idles == "N" && function.driver == "vfio-pci"
                        ? "; options vfio-pci disable_idle_d3=1 keeps devices awake that come back broken"
                        : ""));
  }
  if (state == "D3cold") {
    return std::move(check).warned(
        fmt::format("{} is D3cold: without power", path),
        fmt::format("if it does not come back, keep it awake: write 0 to {} and on to {}",
                    path_text(function, "d3cold_allowed"), path_text(function, "power/control")));
  }
  return std::move(check).unknown(fmt::format("{} says '{}'", path, shown(state)));
}

// The 64-bit BARs that the device requests. Hardware fixes their low four bits, whatever the firmware did. A
// 32-bit BAR without an address reads 0, like one that does not exist.
std::vector<unsigned> desired_64bit_bars(std::string_view config) {
  constexpr std::size_t kFirst = 0x10;
  constexpr unsigned kBars = 6;
  constexpr unsigned kTypeMask = 0x7;  // bit 0: I/O; bits 1 and 2: width
  constexpr unsigned k64Bit = 0x4;
  std::vector<unsigned> out;
  for (unsigned index = 0; index + 1 < kBars; ++index) {
    const std::size_t at = kFirst + 4UL * index;
    if (at >= config.size()) break;
    if ((static_cast<unsigned char>(config[at]) & kTypeMask) == k64Bit) {
      out.push_back(index);
      ++index;  // the upper half is the next register
    }
  }
  return out;
}

Check bars_check(const HostFs& host, const PciFunction& function, const DeviceFacts& facts) {
  Check check{"bars-assigned", function.address.text(),
              "a GPU whose memory window has no address cannot be used by any driver, a guest's included"};
  const auto path = path_text(function, "resource");
  const auto trouble = trouble_with(facts, "resource");
  if (!facts.bars) {
    return std::move(check).unknown(trouble.empty() ? fmt::format("there is no {}", path) : trouble,
                                    "run as root");
  }
  if (facts.bars->empty()) {
    // Six lines of zeros mean that no BAR has an address; an empty file says nothing.
    const auto text = read_text(host, sysfs_path(function.address) / "resource");
    if (!text || text->empty()) return std::move(check).unknown(fmt::format("{} is empty", path));
  }
  std::vector<std::string> missing;
  for (const Bar& bar : *facts.bars) {
    // I/O ports are a relic: GPUs work without them.
    if (bar.is_memory() && !bar.is_assigned()) missing.push_back(fmt::format("BAR {}", bar.index));
  }
  const auto config = host.read_file(sysfs_path(function.address) / "config");
  if (config && trouble.empty()) {
    for (const unsigned index : desired_64bit_bars(*config)) {
      if (std::ranges::find(*facts.bars, index, &Bar::index) == facts.bars->end())
        missing.push_back(fmt::format("BAR {} (64-bit)", index));
    }
  }
  if (!missing.empty()) {
    return std::move(check).failed(fmt::format("{} has no address for {}", path, fmt::join(missing, ", ")),
                                   "switch Above 4G Decoding (and, for the largest, 64-bit MMIO size) on in "
                                   "the firmware setup and reboot");
  }
  if (!trouble.empty()) return std::move(check).unknown(trouble);
  if (!config) return std::move(check).unreadable(config.error());
  if (facts.bars->empty()) return std::move(check).unknown(fmt::format("{} lists no BAR", path));
  return std::move(check).passed(
      fmt::format("{} has addresses for {}", path, counted(facts.bars->size(), "BAR")));
}

// The number at the start of "16.0 GT/s PCIe", in tenths.
std::optional<unsigned> tenths(const std::string& speed) {
  unsigned value = 0;
  std::size_t i = 0;
  for (; i < speed.size() && i < 4 && speed[i] >= '0' && speed[i] <= '9'; ++i)
    value = value * 10 + static_cast<unsigned>(speed[i] - '0');
  if (i == 0) return std::nullopt;
  value *= 10;
  if (i + 1 < speed.size() && speed[i] == '.' && speed[i + 1] >= '0' && speed[i + 1] <= '9')
    value += static_cast<unsigned>(speed[i + 1] - '0');
  return value;
}

Check link_check(const PciFunction& function, const DeviceFacts& facts) {
  Check check{"pcie-link", function.address.text(),
              "a link below what the card can do makes every transfer of the guest slower"};
  for (const char* name : {"current_link_speed", "max_link_speed", "current_link_width", "max_link_width"}) {
    if (const auto trouble = trouble_with(facts, name); !trouble.empty())
      return std::move(check).unknown(trouble, "run as root");
  }
  const auto path = path_text(function, "{current,max}_link_{speed,width}");
  const LinkFacts& link = facts.link;
  if (!link.current_speed || !link.max_speed || !link.current_width || !link.max_width)
    return std::move(check).unknown(fmt::format("{} do not all say something", path));
  const auto current = tenths(*link.current_speed);
  const auto most = tenths(*link.max_speed);
  if (!current || !most) {
    return std::move(check).unknown(
        fmt::format("{}: '{}' of '{}'", path, shown(*link.current_speed), shown(*link.max_speed)));
  }
  const std::string found = fmt::format("{}: {} x{} of {} x{}", path, shown(*link.current_speed),
                                        *link.current_width, shown(*link.max_speed), *link.max_width);
  if (*link.current_width < *link.max_width) {
    return std::move(check).warned(found,
                                   "a slot with more lanes, or the card seated anew; risers and bifurcation "
                                   "in the firmware setup take lanes away");
  }
  if (*current < *most) {
    return std::move(check).warned(found,
                                   "look again under load: an idle GPU lowers its link by itself; if it "
                                   "stays, the slot's speed in the firmware setup, or a riser");
  }
  return std::move(check).passed(found);
}

Check numa_check(const HostFs& host, const PciFunction& function, const DeviceFacts& facts) {
  constexpr const char* kNodes = "sys/devices/system/node/online";
  Check check{"numa-node", function.address.text(),
              "a VM whose memory and CPUs are on the GPU's node transfers faster"};
  if (const auto trouble = trouble_with(facts, "numa_node"); !trouble.empty())
    return std::move(check).unknown(trouble, "run as root");
  const auto path = path_text(function, "numa_node");
  if (facts.numa_node) return std::move(check).passed(fmt::format("{} is {}", path, *facts.numa_node));
  const auto nodes = read_text(host, kNodes);
  if (!nodes && !is_gone(nodes.error())) return std::move(check).unknown(nodes.error().message);
  if (!nodes || *nodes == "0")
    return std::move(check).passed(fmt::format("{} names none, and this host has only one", path));
  return std::move(check).unknown(
      fmt::format("{} names none; /{} is {}", path, kNodes, shown(*nodes)),
      "a firmware update may tell the kernel; without it VMs are placed anywhere");
}

}  // namespace

// A note begins with the attribute's name, or is a failed call's message, whose path ends with that name.
std::string trouble_with(const DeviceFacts& facts, std::string_view attribute) {
  const std::string start = fmt::format("{}: ", attribute);
  for (const std::string& note : facts.notes)
    if (note.starts_with(start) || note.find("/" + start) != std::string::npos) return note;
  return {};
}

std::vector<Check> of_condition(const HostFs& host, const PciFunction& function, const DeviceFacts& facts) {
  std::vector<Check> out = {bars_check(host, function, facts), reset_check(function, facts),
                            link_check(function, facts), numa_check(host, function, facts)};
  if (function.bus != BusLook::error) out.push_back(power_check(host, function, facts));
  return out;
}

}  // namespace ferry::vfio::checks
