// SPDX-License-Identifier: Apache-2.0
#include "policy/accelerators.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "common/text/text.h"
#include "hostfs/check_reading.h"

namespace ferry::policy {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::array kVendors = {NamedVendor{.name = "nvidia", .id = kNvidia},
                                 NamedVendor{.name = "amd", .id = 0x1002},
                                 NamedVendor{.name = "intel", .id = 0x8086}};
constexpr std::array kClasses = {NamedClass{.name = "vga", .pci_class = vfio::PciClass::vga},
                                 NamedClass{.name = "3d", .pci_class = vfio::PciClass::display_3d},
                                 NamedClass{.name = "nvswitch", .pci_class = vfio::PciClass::bridge_other}};

/// vGPUs on virtual functions came with Ampere. A Turing board may have an SR-IOV capability (a T4: 16), but
/// its driver never switches it on.
constexpr std::array<std::string_view, 5> kWithoutVirtualFunctions = {"kepler", "maxwell", "pascal", "volta",
                                                                      "turing"};

bool never_has_virtual_functions(const vfio::PciFunction& function) {
  const std::string subsystem =
      function.subsystem_vendor && function.subsystem_device
          ? fmt::format("{:04x}:{:04x}", *function.subsystem_vendor, *function.subsystem_device)
          : std::string();
  const std::string_view family = gpu_model(function.ids(), subsystem).family;
  return std::ranges::find(kWithoutVirtualFunctions, family) != kWithoutVirtualFunctions.end();
}

}  // namespace

vfio::AcceleratorRules default_accelerator_rules() {
  return {.vendors = {kNvidia},
          .classes = {vfio::PciClass::vga, vfio::PciClass::display_3d},
          .on_request = {vfio::PciClass::bridge_other},
          .of_other_vendors = {vfio::PciClass::vga, vfio::PciClass::xga, vfio::PciClass::display_3d,
                               vfio::PciClass::display_other, vfio::PciClass::processing_accelerator},
          .never_has_virtual_functions = never_has_virtual_functions,
          .whose = "NVIDIA"};
}

std::span<const NamedVendor> named_vendors() {
  return kVendors;
}

std::span<const NamedClass> named_classes() {
  return kClasses;
}

// The program holds the table as it is in the repository: nothing is generated, parsed at start or relocated.
// NOLINTNEXTLINE(hicpp-no-assembler)
asm(R"(
  .pushsection .rodata.ferry_gpu_models, "a", @progbits
ferry_gpu_models_begin:
  .incbin ")" FERRY_GPU_MODELS R"("
ferry_gpu_models_end:
  .popsection
)");
extern "C" {
// NOLINTBEGIN(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
extern const char ferry_gpu_models_begin[];
extern const char ferry_gpu_models_end[];
// NOLINTEND(modernize-avoid-c-arrays,cppcoreguidelines-avoid-c-arrays)
}

std::string_view gpu_models_text() {
  return {ferry_gpu_models_begin, static_cast<std::size_t>(ferry_gpu_models_end - ferry_gpu_models_begin)};
}

GpuModel gpu_model(std::string_view ids, std::string_view subsystem_ids) {
  if (ids.find_first_of("\t\n") != std::string_view::npos) return {};  // would match more columns
  const std::string head = fmt::format("{}\t", ids);
  std::string_view text = gpu_models_text();
  const auto begin = text.find("\n" + head);
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + 1);
  GpuModel out;
  while (text.starts_with(head)) {  // lines of one device stand together
    std::string_view line = cut(text, '\n').substr(head.size());
    const auto boards = words_between(cut(line, '\t'), ',');
    const bool of_this_board = std::ranges::find(boards, subsystem_ids) != boards.end();
    if (!boards.empty() && !of_this_board) continue;
    out.product = cut(line, '\t');
    out.memory_mib = whole_number(cut(line, '\t'));
    out.family = line;
    if (of_this_board) break;
  }
  return out;
}

}  // namespace ferry::policy
