// SPDX-License-Identifier: Apache-2.0
// Hosts whose /proc and whose sysfs, as far as the probes read them, are broken at random: whatever is
// harmed, what was left whole is found all the same, and nobody who is not there. A seed that fails is run
// again by FERRY_RANDOM_PROC_FROM=SEED FERRY_RANDOM_PROC=1.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"
#include "vfio/bind/rebind_plan.h"

namespace ferry::host {
namespace {

namespace fs = std::filesystem;
using test::FakeKernel;
using test::must;

constexpr const char* kOnVfio = "0000:01:00.0";        // in use by process 900, in group 7
constexpr const char* kUsb = "0000:02:00.0";           // with a disk
constexpr const char* kFree = "0000:03:00.0";          // in group 9
constexpr const char* kGpu = "0000:04:00.0";           // on nvidia
constexpr DeviceNumber kHeld{.major = 1, .minor = 3};  // that of a device every host has
constexpr DeviceNumber kUnheld{.major = 511, .minor = 511};

unsigned number_from(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

class RandomProc {
 public:
  explicit RandomProc(unsigned seed) : random_(seed) {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_driver({.name = "nvidia"});
    kernel.add_function({.address = kOnVfio, .group = 7, .driver = "vfio-pci"});
    kernel.add_function({.address = kUsb, .class_code = 0x0c0330, .group = 8});
    kernel.add_function({.address = kFree, .group = 9, .driver = "vfio-pci"});
    kernel.add_function({.address = kGpu, .group = 10, .driver = "nvidia"});
    kernel.file("sys/class/vfio/7/dev", number(kHeld));
    kernel.file("sys/class/vfio/9/dev", number(kUnheld));
    const std::string disk = "sys/devices/pci0000:00/" + std::string(kUsb) + "/usb3/3-1/host6/block/sdb";
    kernel.file(disk + "/dev", "8:16\n");
    kernel.file(disk + "/uevent", "DEVNAME=sdb\n");
    kernel.link(disk + "/subsystem", "/sys/class/block");
    kernel.file("proc/driver/nvidia/gpus/" + std::string(kGpu) + "/information", "Device Minor: \t 3\n");
    kernel.file("proc/devices", "Character devices:\n195 nvidia\n234 nvidia-nvswitch\n");
    kernel.directory("sys/module/nvidia/holders/gdrdrv");
    kernel.add_plain_module("nvidia_drm", {{"modeset", "Y"}, {"fbdev", "N"}});
    for (const int pid : {11, 12, 13}) process(pid, "/dev/full");
    process(900, "/dev/null");
    const auto harms = 1 + below(8);
    for (unsigned i = 0; i < harms; ++i) {
      try {
        harm();
      } catch (const std::exception&) {
        // One harm can be in the way of the next: a file where its directory was.
      }
    }
  }
  FakeKernel kernel;

 private:
  static std::string number(DeviceNumber device) {
    return std::to_string(device.major) + ":" + std::to_string(device.minor) + "\n";
  }
  unsigned below(std::size_t limit) { return static_cast<unsigned>(random_() % limit); }

  void process(int pid, const std::string& opened) {
    const std::string directory = "proc/" + std::to_string(pid);
    kernel.file(directory + "/comm", "p" + std::to_string(pid) + "\n");
    kernel.file(directory + "/cmdline", std::string("program\0", 8));
    kernel.file(directory + "/cgroup", "0::/system.slice/a.service\n");
    kernel.file(directory + "/maps", "00e03000-00e24000 rw-s 00000000 00:06 409 /dev/x\n");
    kernel.link(directory + "/fd/3", opened);
    kernel.directory(directory + "/task/" + std::to_string(pid));
  }

  fs::path victim() {
    constexpr std::array kOfProcesses = {"comm", "cmdline", "cgroup", "maps",   "map_files",  "fd",
                                         "fd/3", "task",    "stat",   "task/x", "task/14/fd", ""};
    constexpr std::array kElsewhere = {"proc/devices",
                                       "proc/iomem",
                                       "proc/self",
                                       "proc/99999999999",
                                       "proc/-5",
                                       "proc/12a",
                                       "proc/driver/nvidia/gpus/0000:04:00.0/information",
                                       "proc/driver/nvidia/gpus",
                                       "sys/class/vfio/9",
                                       "sys/class/vfio/9/dev",
                                       "sys/class/vfio/noiommu-9",
                                       "sys/class/vfio/noiommu-9/dev",
                                       "sys/class/vfio/10",
                                       "sys/class/graphics",
                                       "sys/class/graphics/fb0/device",
                                       "sys/module/nvidia/holders",
                                       "sys/module/nvidia_drm/parameters/modeset",
                                       "sys/bus/pci/drivers/nvidia",
                                       "sys/devices/pci0000:00/0000:04:00.0/drm",
                                       "sys/devices/pci0000:00/0000:04:00.0/driver",
                                       "sys/devices/pci0000:00/0000:03:00.0/drm/card0/dev"};
    if (below(3) == 0) return kElsewhere.at(below(kElsewhere.size()));
    const fs::path process = fs::path("proc") / std::to_string(11 + below(3));
    const std::string_view file = kOfProcesses.at(below(kOfProcesses.size()));
    return file.empty() ? process : process / file;
  }
  std::string content() {
    constexpr std::array kTexts = {"",
                                   "\n",
                                   ":",
                                   "1:",
                                   ":3",
                                   "-1:-1",
                                   "99999999999:99999999999",
                                   "1:3:5",
                                   "00-",
                                   "-00 rw-s /",
                                   "0-0 rw-s /\n\n",
                                   "a b\tc",
                                   "anon_inode:kvm-vm",
                                   "0::/kubepods/pod/x\n",
                                   "Device Minor:",
                                   "Character devices:\n4294967296 nvidia\n"};
    const auto kind = below(kTexts.size() + 2);
    if (kind < kTexts.size()) return kTexts.at(kind);
    std::string noise(kind == kTexts.size() ? below(70) : 70000, '\0');
    std::ranges::generate(noise, [this] { return static_cast<char>(random_()); });
    return noise;
  }
  void harm() {
    const fs::path path = victim();
    const auto kind = below(4);
    kernel.remove(path);
    if (kind == 0) return;  // not there
    if (kind == 1) return kernel.directory(path);
    if (kind == 2) {
      constexpr std::array kTargets = {"/etc/passwd",           "..",         ".",    "/", "no/such/thing",
                                       "../../../../../../tmp", "socket:[1]", "/proc"};
      return kernel.link(path, kTargets.at(below(kTargets.size())));
    }
    kernel.file(path, content());
  }

  std::mt19937 random_;
};

std::vector<std::string> texts(const vfio::UseReport& report, const char* device) {
  std::vector<std::string> out;
  for (const vfio::DeviceUser& user : report.of(device)) out.push_back(user.text());
  return out;
}

TEST(RandomProcs, HideNobodyWhoIsWholeAndMakeNobodyUp) {
  const unsigned first = number_from("FERRY_RANDOM_PROC_FROM", 0);
  const unsigned count = number_from("FERRY_RANDOM_PROC", 300);
  const vfio::AcceleratorRules rules{.vendors = {0x10de}, .classes = {vfio::PciClass::vga}, .on_request = {}};
  for (unsigned seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(seed);
    const RandomProc machine(seed);
    const FakeKernel& kernel = machine.kernel;
    using Questions = std::span<const vfio::UseQuestion>;
    std::vector<FindUsers> sources = {[&](Questions asked) { return ProcUseProbe(kernel).look(asked); },
                                      [&](Questions asked) { return screen_users(kernel, asked); },
                                      [&](Questions asked) { return console_users(kernel, asked); },
                                      [&](Questions asked) { return module_users(kernel, asked); },
                                      [&](Questions asked) -> Result<vfio::UseReport> {
                                        return fabric_users(kernel, must(vfio::scan(kernel)), rules, asked);
                                      }};
    std::vector<vfio::PciAddress> addresses;
    for (const char* address : {kOnVfio, kUsb, kFree, kGpu})
      addresses.push_back(must(vfio::PciAddress::parse(address)));
    const auto questions = vfio::use_questions(kernel, must(vfio::scan(kernel)), addresses);
    const vfio::UseReport report =
        must(CombinedUseProbe(kernel, read_by_another_process(kernel), std::move(sources)).look(questions));
    EXPECT_THAT(texts(report, kOnVfio), testing::ElementsAre("process p900 (pid 900) holds /dev/vfio/7"));
    EXPECT_THAT(texts(report, kUsb), testing::ElementsAre("disk /dev/sdb is attached to it"));
    for (const char* free : {kFree, kGpu}) EXPECT_THAT(texts(report, free), testing::IsEmpty());
    if (testing::Test::HasFailure()) return;  // the first one is reported; the others are of its kind
  }
}

}  // namespace
}  // namespace ferry::host
