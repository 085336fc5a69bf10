// SPDX-License-Identifier: Apache-2.0
// Each file that a check reads, with content that is none.
#include <algorithm>
#include <cctype>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "hostfs/check_reading.h"
#include "tests/vfio/checked_host.h"

namespace ferry::vfio {
namespace {

using test::FakeKernel;
using test::kGpu;
using test::of_gpu;
using testing::IsEmpty;
using testing::Not;

/// What a file or directory that a check reads is replaced by.
struct Garbage {
  const char* name;
  void (*put)(const FakeKernel&, const std::string&);
};
void put_file(const FakeKernel& kernel, const std::string& path, const std::string& content) {
  kernel.remove(path);  // it may be a link or a directory
  kernel.file(path, content);
}
const std::vector<Garbage> kGarbage = {
    {"empty", [](const FakeKernel& kernel, const std::string& path) { put_file(kernel, path, ""); }},
    {"binary",
     [](const FakeKernel& kernel, const std::string& path) {
       put_file(kernel, path, std::string("\0\xff\x01\x80[Y]\x7f", 8));
     }},
    {"huge",
     [](const FakeKernel& kernel, const std::string& path) {
       // Lists may be long: more than any.
       const bool list = path.starts_with("proc/") || path.starts_with("lib/");
       put_file(kernel, path, std::string(list ? kListBytes + 1 : kAttributeBytes + 1, '7'));
     }},
    {"directory",
     [](const FakeKernel& kernel, const std::string& path) {
       kernel.remove(path);
       kernel.directory(path + "/inside");
     }},
};

/// Something that a check reads. What garbage makes no garbage of (an empty command line is one) is named.
struct Input {
  std::string path;
  std::string id;  ///< empty: only explains, and decides nothing
  std::string subject = kHostSubject;
  std::set<std::string> sensible = {};
};
void PrintTo(const Input& row, std::ostream* out) {
  *out << row.path;
}

std::vector<Input> inputs() {
  const std::set<std::string> directory = {"directory"};
  return {
      {"proc/cmdline", "acs-override", kHostSubject, {"empty"}},
      {"proc/cmdline", "vfio-pci-ids", kHostSubject, {"empty"}},
      {"proc/cpuinfo", ""},
      {"proc/interrupts", "interrupt-remapping"},
      {"proc/iomem", "firmware-framebuffer", kGpu},
      {"proc/sys/kernel/osrelease", "vfio-pci-available"},
      {"proc/sys/kernel/osrelease", "kernel-release"},
      {kModules, "vfio-pci-available", kHostSubject, directory},
      {kModules + "/modules.dep", "vfio-pci-available", kHostSubject},
      {kModules + "/modules.builtin", "vfio-pci-available", kHostSubject, {"empty"}},
      {"sys/firmware/acpi/tables", "firmware-iommu-table", kHostSubject, directory},
      {"sys/class/iommu", "iommu-active", kHostSubject, directory},
      {"sys/kernel/iommu_groups", "iommu-active", kHostSubject, directory},
      {"sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "noiommu-mode"},
      {"sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "unsafe-interrupts"},
      {"sys/kernel/security/lockdown", "kernel-lockdown"},
      {"etc/modprobe.d", "vfio-pci-ids", kHostSubject, directory},
      {"etc/modprobe.d/blacklist.conf", "vfio-pci-ids", kHostSubject, {"empty"}},
      {"etc/modprobe.d/blacklist.conf", "vfio-not-blocked", kHostSubject, {"empty"}},
      {"etc/driverctl.d", "driverctl-overrides", kHostSubject, directory},
      {"etc/driverctl.d/pci-0000:65:00.0", "driverctl-overrides", kHostSubject, {"empty"}},
      {"dev/vfio", "vfio-container-node", kHostSubject, directory},
      {"sys/class/graphics", "console-framebuffer", kGpu, directory},
      {"sys/class/graphics/fb0/device", "console-framebuffer", kGpu},
      {"sys/class/vtconsole", "console-framebuffer", kGpu},
      {"sys/class/vtconsole/vtcon1/name", "console-framebuffer", kGpu, {"empty", "huge"}},
      {"sys/class/vtconsole/vtcon1/bind", "console-framebuffer", kGpu},
      {of_gpu("iommu_group"), "in-iommu-group", kGpu},
      {of_gpu("boot_vga"), "boot-display", kGpu},
      {of_gpu("resource"), "bars-assigned", kGpu},
      {of_gpu("resource"), "firmware-framebuffer", kGpu},
      {of_gpu("resource"), "option-rom", kGpu},
      {of_gpu("resource1_resize"), "bar-size", kGpu, directory},
      {"sys/devices/pci0000:00/0000:00:01.0/config", "acs-isolation", kGpu},
      {of_gpu("reset_method"), "reset-method", kGpu, {"empty"}},
      {of_gpu("power_state"), "power-state", kGpu},
      {of_gpu("current_link_speed"), "pcie-link", kGpu},
      {of_gpu("max_link_speed"), "pcie-link", kGpu},
      {of_gpu("current_link_width"), "pcie-link", kGpu},
      {of_gpu("max_link_width"), "pcie-link", kGpu},
      {of_gpu("numa_node"), "numa-node", kGpu},
      {"sys/devices/system/node/online", ""},
      {of_gpu("config"), ""},
      {of_gpu("vendor"), ""},
      {of_gpu("class"), ""},
      {of_gpu("modalias"), ""},
      {of_gpu("driver"), ""},
      {of_gpu("driver_override"), ""},
  };
}

class MalformedInput : public testing::TestWithParam<Input> {};

TEST_P(MalformedInput, IsUnknownAndNeverACrash) {
  const Input& input = GetParam();
  for (const Garbage& garbage : kGarbage) {
    FakeKernel kernel;
    test::build_healthy(kernel);
    give_framebuffer(kernel);
    shared_below(test::kRootPort, test::Acs{.does = 0x1d})(kernel);
    // It says what they do.
    if (input.path == of_gpu("vendor") || input.path == of_gpu("class")) kernel.remove(of_gpu("modalias"));
    garbage.put(kernel, input.path);
    const auto checks = checks_of(kernel);
    EXPECT_THAT(checks, Not(IsEmpty()));
    if (input.id.empty() || input.sensible.contains(garbage.name)) continue;
    const Check* check = find(checks, input.id, input.subject);
    ASSERT_NE(check, nullptr) << garbage.name;
    EXPECT_EQ(text(check->verdict), "unknown") << garbage.name << ": " << check->found;
    EXPECT_THAT(check->found, Not(IsEmpty())) << garbage.name;
    EXPECT_LT(check->found.size(), 1000U) << garbage.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Table, MalformedInput, testing::ValuesIn(inputs()), [](const auto& row) {
  std::string name = row.param.path + "_" + row.param.id;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace ferry::vfio
