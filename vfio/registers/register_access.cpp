// SPDX-License-Identifier: Apache-2.0
#include "vfio/registers/register_access.h"

#include <fcntl.h>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "hostfs/check_reading.h"
#include "vfio/pci/config_space.h"
#include "vfio/pci/pci_resources.h"

namespace ferry::vfio {
namespace {

constexpr std::size_t kWholeConfig = 4096;

// The code of errors for RegisterFacts::in_use.
const std::error_code kInUse = std::make_error_code(std::errc::device_or_resource_busy);

// Empty: it may be read.
std::string why_not_touched(const PciFunction& function) {
  if (function.vendor != kNvidia)
    return fmt::format("it is of vendor {:04x}, and registers are known of NVIDIA alone", function.vendor);
  if (function.is_virtual_function()) return "it is a virtual function";
  const bool gpu = function.pci_class() == PciClass::vga || function.pci_class() == PciClass::display_3d;
  if (!gpu && !is_switch(function)) return "it is no GPU and no NVSwitch";
  if (gpu && !gpu_chip(function.device))
    return fmt::format("its chip is older than Hopper, or unknown (device {:04x})", function.device);
  if (function.driver && *function.driver != "vfio-pci") return "driver " + *function.driver + " owns it";
  if (function.sriov_numvfs > 0) return fmt::format("it has {} virtual functions", function.sriov_numvfs);
  if (function.problem && function.bus != BusLook::asleep) return function.problem->message;
  return {};
}

// Without CAP_SYS_ADMIN the kernel gives 64 bytes: the capabilities are then taken as missing.
Result<std::string> read_config(const HostFs& host, const PciAddress& address, std::size_t most) {
  const auto path = sysfs_path(address) / "config";
  const auto file = host.open(path, O_RDONLY);
  if (!file) return fail(file.error());
  std::string config(most, '\0');
  const ssize_t size = ::pread(file->get(), config.data(), config.size(), 0);
  if (size < 0) return fail(error_from_errno(errno, "read /" + path.string()));
  config.resize(static_cast<std::size_t>(size));
  return config;
}

// "D3hot", or "D3" from config space for a kernel that does not say so; empty: it is awake.
// ABI: sysfs `power_state`; PCI Bus Power Management Interface 1.2, 3.2.4.
Result<std::string> sleep_state(const HostFs& host, const PciAddress& address, std::string_view config) {
  constexpr std::uint8_t kPowerManagement = 0x01;
  constexpr std::size_t kControl = 4;
  const std::string said = host.read_attribute(sysfs_path(address) / "power_state").value_or("");
  if (said.starts_with("D") && said != "D0") return said;
  if (config.size() < kConventionalBytes) return std::string();
  const auto at = find_capability(config, kPowerManagement);
  if (!at) return fail(at.error());
  const unsigned state = *at && **at + kControl < config.size() ? byte_at(config, **at + kControl) & 0x3U : 0;
  return state == 0 ? std::string() : fmt::format("D{}", state);
}

// The place of NVIDIA's capability of PCI Express' kind for vendors (DVSEC), with id 0. Source as in chip.h.
Result<std::optional<std::size_t>> designated_capability(std::string_view config) {
  constexpr std::uint16_t kDesignated = 0x0023;
  return find_extended(config, kDesignated, [&](std::size_t at) {
    return at + 0x18 <= config.size() && word_at(config, at + 4) == kNvidia && word_at(config, at + 8) == 0;
  });
}

// A Blackwell GPU shows in config space that its registers cannot be read yet. Some chips show it also in
// NVIDIA's capability of the older kind for vendors (VSEC), with id 1 and revision 1. Source as in chip.h.
Result<bool> firewall_is_up(std::string_view config, ChipFamily family) {
  const auto designated = designated_capability(config);
  if (!designated) return fail(designated.error());
  if (*designated && ((dword_at(config, **designated + 0x8) >> 20U) & 1U) != 0) return true;
  if (family != ChipFamily::gb20x) return false;
  constexpr std::uint16_t kVendorSpecific = 0x000b;
  const auto vendor = find_extended(config, kVendorSpecific, [&](std::size_t at) {
    return at + 0x18 <= config.size() && (dword_at(config, at + 4) & 0xfffffU) == 0x10001U;
  });
  if (!vendor) return fail(vendor.error());
  return *vendor && ((dword_at(config, **vendor + 0x14) >> 24U) & 1U) != 0;
}

Result<std::unique_ptr<MappedRegisters>> map_registers(const HostFs& host, const PciAddress& address,
                                                       MappedRegisters::Access access) {
  const auto path = sysfs_path(address);
  const auto resource = host.read_attribute(path / "resource");
  if (!resource) return fail(resource.error());
  const auto bars = parse_pci_resources(*resource).bars;
  if (bars.empty() || bars.front().index != 0 || !bars.front().is_assigned())
    return fail(Errc::malformed_host, "it has no BAR 0");
  if (bars.front().size < kRegisterBytes)
    return fail(Errc::malformed_host,
                fmt::format("BAR 0 has {} bytes, and a chip that is known has {} at least", bars.front().size,
                            kRegisterBytes));
  const bool reads = access == MappedRegisters::Access::read;
  const auto file = host.open(path / "resource0", reads ? O_RDONLY : O_RDWR);
  if (!file) return fail(file.error());
  auto mapped = MappedRegisters::map(*file, access);
  if (mapped) return mapped;
  const bool in_use = mapped.error().code == std::errc::invalid_argument;
  return fail(
      Error{.code = in_use ? kInUse : mapped.error().code, .message = why_not_mapped(mapped.error())});
}

// Waking a function takes time, in which a VM may open it, or another process may bind it. A writer holds the
// function's group, so no VM can.
Result<> expect_free(const HostFs& host, const PciFunction& function, MappedRegisters::Access access) {
  const std::string driver = function.driver.value_or("");
  if (host.link_name(sysfs_path(function.address) / "driver").value_or("") != driver)
    return fail(Errc::refused, "its driver has changed meanwhile");
  if (!driver.empty() && access == MappedRegisters::Access::read && is_opened(host, function.address))
    return fail(Error{.code = kInUse, .message = "it is in use: a user has opened it"});
  return {};
}

}  // namespace

const std::error_code kFirewallUp = std::make_error_code(std::errc::resource_unavailable_try_again);

bool is_switch(const PciFunction& function) {
  return function.pci_class() == PciClass::bridge_other;
}

std::string why_not_mapped(const Error& error) {
  if (error.code == std::errc::operation_not_permitted) return kLockedDown;
  if (error.code == std::errc::invalid_argument)
    return "it is in use: a user or a driver has requested its memory range";
  return error.message;
}

Result<std::unique_ptr<MappedRegisters>> open_registers(const HostFs& host, ReadingRecord& record,
                                                        const PciFunction& function,
                                                        MappedRegisters::Access access) {
  const PciAddress& address = function.address;
  if (auto why = why_not_touched(function); !why.empty()) return fail(Errc::refused, std::move(why));
  if (auto free = expect_free(host, function, access); !free) return fail(std::move(free).error());

  if (auto awake = record.keep_awake(host, address); !awake) return fail(std::move(awake).error());
  if (auto free = expect_free(host, function, access); !free) return fail(std::move(free).error());
  const auto chip = is_switch(function) ? std::nullopt : gpu_chip(function.device);
  const bool blackwell = chip && chip->family != ChipFamily::hopper;
  const auto config = read_config(host, address, blackwell ? kWholeConfig : kConventionalBytes);
  if (!config) return fail(config.error());
  const auto asleep = sleep_state(host, address, *config);
  if (!asleep) return fail(asleep.error());
  if (!asleep->empty()) return fail(Errc::failed, fmt::format("it sleeps ({}), and does not wake", *asleep));
  if (blackwell) {
    const auto closed = firewall_is_up(*config, chip->family);
    if (!closed) return fail(closed.error());
    if (*closed) return fail(Error{.code = kFirewallUp, .message = "its firewall is up, as while it boots"});
  }

  if (auto enabled = record.enable_memory(host, address); !enabled)
    return fail(Error{.code = enabled.error().code,
                      .message = enabled.error().code == std::errc::operation_not_permitted
                                     ? kLockedDown
                                     : enabled.error().message});
  auto registers = map_registers(host, address, access);
  if (!registers) return registers;
  if (auto free = expect_free(host, function, access); !free) return fail(std::move(free).error());
  return registers;
}

std::string fault_detail(const HostFs& host, const PciAddress& address, ChipFamily family) {
  constexpr std::size_t kHopperWord = 0x2b4;
  constexpr std::size_t kBlackwellWord = 0x14;
  const auto config = read_config(host, address, kWholeConfig);
  if (!config) return {};
  std::size_t at = kHopperWord;
  if (family != ChipFamily::hopper) {
    const auto designated = designated_capability(*config);
    if (!designated || !*designated) return {};
    at = **designated + kBlackwellWord;
  }
  if (at + sizeof(std::uint32_t) > config->size()) return {};
  return fmt::format(" (config space {:#x}: {:#x})", at, dword_at(*config, at));
}

}  // namespace ferry::vfio
