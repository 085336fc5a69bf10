// SPDX-License-Identifier: Apache-2.0
// ABI: Documentation/ABI/testing/sysfs-bus-pci (resourceN_resize, October 2022; rom);
// Documentation/PCI/sysfs-pci.rst.
#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "vfio/checks/passthrough_checks.h"
#include "vfio/pci/bridge_config.h"
#include "vfio/pci/device_facts.h"

namespace ferry::vfio::checks {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t k4GiB = std::uint64_t{1} << 32U;

// A size in the largest unit that leaves a whole number: sizes here are powers of two.
std::string size_text(std::uint64_t bytes) {
  const auto whole = [&](unsigned shift) { return bytes != 0 && bytes % (std::uint64_t{1} << shift) == 0; };
  if (whole(30)) return fmt::format("{} GiB", bytes >> 30U);
  if (whole(20)) return fmt::format("{} MiB", bytes >> 20U);
  if (whole(10)) return fmt::format("{} KiB", bytes >> 10U);
  return fmt::format("{} bytes", bytes);
}

// ", and the window of bridge 0000:64:00.0 above it has 512 MiB", if less than `needed`; else "".
std::string window_note(const HostFs& host, const PciFunction& function, const Bar& bar,
                        std::uint64_t needed) {
  const auto above = read_place(host, function.address).above;
  if (above.empty()) return {};
  const auto bridge = PciAddress::parse(above.back());
  if (!bridge) return {};
  const auto config = host.read_file(sysfs_path(*bridge) / "config");
  if (!config) return {};
  const auto window = prefetchable_window(*config);
  // A BAR outside this window lies in another one, which is not read.
  if (!window || bar.start < window->start || bar.start - window->start >= window->size) return {};
  if (window->size >= needed) return {};
  return fmt::format(", and the window of bridge {} above it has {}", bridge->text(),
                     size_text(window->size));
}

/// Resizable BARs of a function, by their state.
struct Sizes {
  std::vector<std::string> homeless;  // without an address
  std::vector<std::string> small;     // smaller than they could be
  std::vector<std::string> full;
  std::vector<std::string> odd;    // with a size that the device does not list
  std::vector<std::string> cures;  // values to write, with the file
};

void judge(const HostFs& host, const PciFunction& function, const std::vector<Bar>& bars,
           const ResizableBar& can, Sizes& sizes) {
  const std::string file = path_text(function, fmt::format("resource{}_resize", can.index));
  constexpr std::uint64_t kMostMib = std::uint64_t{1} << 43U;  // PCI Express Base 5.0, 7.8.6.3: 8 EiB
  if (can.sizes_mib.empty() || can.sizes_mib.back() > kMostMib)
    return sizes.odd.push_back(fmt::format("{} names no size that a BAR can have", file));
  const std::uint64_t most = can.sizes_mib.back() * kMiB;
  const auto write_for = [&](std::uint64_t mib) {
    return fmt::format("{} to {}", std::bit_width(mib) - 1, file);
  };
  const auto bar = std::ranges::find(bars, can.index, &Bar::index);
  if (bar == bars.end() || !bar->is_assigned()) {
    sizes.homeless.push_back(fmt::format("BAR {} has no address; by {} it could have {} to {}", can.index,
                                         file, size_text(can.sizes_mib.front() * kMiB), size_text(most)));
    return sizes.cures.push_back(write_for(can.sizes_mib.front()));
  }
  if (bar->size == most)
    return sizes.full.push_back(fmt::format("BAR {} has {}", can.index, size_text(most)));
  if (std::ranges::find(can.sizes_mib, bar->size / kMiB) == can.sizes_mib.end() || bar->size % kMiB != 0) {
    return sizes.odd.push_back(
        fmt::format("BAR {} has {}, which {} does not name", can.index, size_text(bar->size), file));
  }
  sizes.small.push_back(fmt::format("BAR {} has {}{} and by {} could have {}{}", can.index,
                                    size_text(bar->size), bar->start < k4GiB ? ", below 4 GiB," : "", file,
                                    size_text(most), window_note(host, function, *bar, most)));
  sizes.cures.push_back(write_for(can.sizes_mib.back()));
}

// A BAR of 4 GiB or more has no room below 4 GiB, neither on the host nor in a guest. A window of twice its
// size holds it at an address that is a multiple of its size, and the smaller BARs beside it.
// Source of the option: edk2, OvmfPkg/Library/PlatformInitLib/MemDetect.c.
std::string guest_note(const std::vector<Bar>& bars) {
  const auto largest = std::ranges::max_element(bars, {}, &Bar::size);
  if (largest == bars.end() || largest->size < k4GiB) return {};
  return fmt::format(
      "; a guest needs a 64-bit window for the {} of BAR {}: Q35, OVMF and a CPU of mode host-passthrough "
      "have it; an OVMF from before 2023 needs, for each such GPU of the VM, {} MiB in QEMU's option -fw_cfg "
      "name=opt/ovmf/X-PciMmio64Mb,string=MIB, which Kata does not set",
      size_text(largest->size), largest->index, std::bit_ceil(2 * largest->size) / kMiB);
}

}  // namespace

Check bar_size_check(const HostFs& host, const PciFunction& function, const DeviceFacts& facts) {
  Check check{"bar-size", function.address.text(),
              "a guest finds the BARs as large as they are here, and cannot make them larger"};
  const auto path = path_text(function, "resource");
  if (const auto trouble = trouble_with(facts, "resource"); !trouble.empty())
    return std::move(check).unknown(trouble, "run as root");
  if (!facts.bars) return std::move(check).unknown(fmt::format("there is no {}", path), "run as root");
  Sizes sizes;
  for (const ResizableBar& can : facts.resizable_bars) judge(host, function, *facts.bars, can, sizes);
  if (!sizes.homeless.empty()) {
    return std::move(check).failed(
        fmt::format("{}", fmt::join(sizes.homeless, "; ")),
        fmt::format("see bars-assigned; where the firmware has no more room, a smaller size may find some: "
                    "write {} while no driver has the device",
                    fmt::join(sizes.cures, ", ")));
  }
  if (!sizes.odd.empty()) return std::move(check).unknown(fmt::format("{}", fmt::join(sizes.odd, "; ")));
  for (unsigned index = 0; index < 6; ++index) {
    if (const auto trouble = trouble_with(facts, fmt::format("resource{}_resize", index)); !trouble.empty())
      return std::move(check).unknown(trouble, "run as root");
  }
  if (!sizes.small.empty()) {
    return std::move(check).warned(fmt::format("{}", fmt::join(sizes.small, "; ")),
                                   fmt::format("switch Resizable BAR and Above 4G Decoding on in the "
                                               "firmware setup; or write {} while no driver has the device",
                                               fmt::join(sizes.cures, ", ")));
  }
  const std::string guest = guest_note(*facts.bars);
  if (!sizes.full.empty()) {
    return std::move(check).passed(
        fmt::format("{}: {}, the most that it can have{}", path, fmt::join(sizes.full, "; "), guest));
  }
  if (facts.bars->empty())
    return std::move(check).unknown(fmt::format("{} lists no BAR", path), "see bars-assigned");
  return std::move(check).passed(
      fmt::format("there is no {}: no size can be chosen{}", path_text(function, "resourceN_resize"), guest));
}

Check rom_check(const PciFunction& function, const DeviceFacts& facts) {
  Check check{"option-rom", function.address.text(),
              "a guest's firmware draws on a display with what the ROM of the card holds; drivers need none"};
  constexpr const char* kNone =
      "nothing if the guest's driver alone uses the card; for its boot screen give the VM the card's ROM as "
      "a file (libvirt: <rom file='FILE'/>)";
  if (function.pci_class() != PciClass::vga) {
    return std::move(check).passed(fmt::format("{} is {:#08x}: no VGA device, which alone would need one",
                                               path_text(function, "class"), function.class_code));
  }
  const auto path = path_text(function, "rom");
  if (!facts.rom) return std::move(check).unknown("its directory cannot be read", "run as root");
  if (!facts.bars) {
    const auto trouble = trouble_with(facts, "resource");
    return std::move(check).unknown(
        trouble.empty() ? fmt::format("there is no {}", path_text(function, "resource")) : trouble,
        "run as root");
  }
  if (facts.rom_range && facts.rom_range->is_rom_copy()) {
    return std::move(check).warned(
        fmt::format("{} is the copy in RAM, at {:#x}, that the firmware has run: {} says so", path,
                    facts.rom_range->start, path_text(function, "resource")),
        "make another display the first in the firmware setup; or give the VM the card's ROM as a file "
        "(libvirt: <rom file='FILE'/>) or none (<rom bar='off'/>)");
  }
  if (!*facts.rom)
    return std::move(check).warned(fmt::format("there is no {}: the kernel found none", path), kNone);
  if (!facts.rom_range || !facts.rom_range->is_assigned()) {
    return std::move(check).unknown(
        fmt::format("{} has no address for {}", path_text(function, "resource"), path),
        "it shows in reading: write 1 to it, read it, write 0; if that gives an error or nothing, a guest "
        "gets nothing either");
  }
  return std::move(check).passed(
      fmt::format("{} has {} at {:#x}", path, size_text(facts.rom_range->size), facts.rom_range->start));
}

}  // namespace ferry::vfio::checks
