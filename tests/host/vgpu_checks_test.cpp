// SPDX-License-Identifier: Apache-2.0
#include "host/vgpu_checks.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "hostfs/stuck_writes.h"
#include "mdev/vgpu_inventory.h"
#include "tests/support/fake_mdev.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGpu = "0000:05:00.0";

class VgpuChecks : public testing::Test {
 protected:
  VgpuChecks() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}});
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    kernel_.file("proc/1/comm", "systemd\n");
    kernel_.file("proc/412/comm", "nvidia-vgpu-mgr\n");
  }
  void add_gpu(const std::string& driver, std::optional<unsigned> totalvfs = {}, unsigned group = 5) {
    kernel_.add_function(test::kinds::kTeslaT4, kGpu, group, driver, totalvfs);
  }
  void add_host_driver() {
    kernel_.file(std::string("proc/driver/nvidia/gpus/") + kGpu + "/unbindLock", "0\n");
  }
  /// A T4 as it should be: mediated devices on the GPU itself.
  void add_t4() {
    add_gpu("nvidia");
    add_host_driver();
    mdev_.add_parent(kGpu);
  }
  std::vector<Check> checks() {
    const vfio::AcceleratorRules rules{
        .vendors = {0x10de},
        .classes = {vfio::PciClass::display_3d},
        .of_other_vendors = {vfio::PciClass::vga, vfio::PciClass::processing_accelerator}};
    return vgpu_checks(kernel_, vfio::scan(kernel_).value(), rules);
  }
  /// "pass: what was found"; "(none)" for no check of that id.
  std::string answer(const std::string& id) {
    for (const Check& check : checks()) {
      if (check.id == id) return std::string(text(check.verdict)) + ": " + check.found;
    }
    return "(none)";
  }
  test::FakeKernel kernel_;
  test::FakeMdev mdev_{kernel_};
};

TEST_F(VgpuChecks, HaveNothingAgainstAHealthyHost) {
  add_t4();
  for (const Check& check : checks()) {
    EXPECT_EQ(check.verdict, Verdict::pass) << check.id << ": " << check.found;
    EXPECT_THAT(check.fix, IsEmpty()) << check.id;
  }
  EXPECT_EQ(answer("vgpu-manager-runs"), "pass: process 412 is nvidia-vgpu-mgr");
  EXPECT_EQ(answer("vgpu-host-driver"), "pass: there is /proc/driver/nvidia/gpus/0000:05:00.0/unbindLock");
  EXPECT_EQ(answer("vgpu-types-offered"), "pass: by mdev on the GPU; it carries 0 vGPUs");
  EXPECT_EQ(answer("vgpu-virtual-functions"), "pass: its vGPUs are made on the GPU itself");
}

TEST_F(VgpuChecks, TellAnOrdinaryDriver) {
  add_gpu("nvidia");
  EXPECT_EQ(answer("vgpu-host-driver"),
            "fail: its driver nvidia is no vGPU host driver: there is no "
            "/proc/driver/nvidia/gpus/0000:05:00.0/unbindLock");
  // What makes vGPUs is one, whatever it leaves out.
  mdev_.add_parent(kGpu);
  EXPECT_EQ(answer("vgpu-host-driver"), "pass: its driver nvidia makes vGPUs by mdev on the GPU");
}

TEST_F(VgpuChecks, RecognizeAGpuThatIsOnVfio) {
  add_gpu("vfio-pci");
  EXPECT_EQ(answer("vgpu-host-driver"), "warn: bound to vfio-pci for passthrough");
}

TEST_F(VgpuChecks, WantTheDaemonWhereThereIsAHostDriver) {
  kernel_.file("proc/412/comm", "nvidia-smi\n");
  add_gpu("nvidia");
  EXPECT_EQ(answer("vgpu-manager-runs"),
            "pass: no process in /proc is nvidia-vgpu-mgr, and no GPU here has a vGPU host driver");
  add_host_driver();
  EXPECT_EQ(answer("vgpu-manager-runs"), "fail: no process in /proc is nvidia-vgpu-mgr");
}

// As in a captured host.
TEST_F(VgpuChecks, KnowNothingOfTheDaemonWhereThereIsNoProcess) {
  add_t4();
  for (const char* process : {"proc/1", "proc/412"}) kernel_.remove(process);
  kernel_.directory("proc/sys");
  EXPECT_EQ(answer("vgpu-manager-runs"), "unknown: /proc shows no process at all");
}

TEST_F(VgpuChecks, WantAnIdentity) {
  add_t4();
  kernel_.remove("etc/machine-id");
  EXPECT_THAT(answer("node-identity"), HasSubstr("fail: "));
}

TEST_F(VgpuChecks, KnowWhatKubeVirtDoesToMediatedDevices) {
  add_gpu("nvidia");
  kernel_.directory("var/lib/kubelet");
  EXPECT_EQ(answer("kubevirt-keeps-mdevs"), "pass: no GPU here makes mediated devices");
  mdev_.add_parent(kGpu);
  EXPECT_EQ(answer("kubevirt-keeps-mdevs"),
            "unknown: a kubelet runs here; whether KubeVirt does, and how, is not on this host");
}

TEST_F(VgpuChecks, TellVirtualFunctionsThatAreNotEnabled) {
  add_gpu("nvidia", 16);
  add_host_driver();
  EXPECT_EQ(answer("vgpu-virtual-functions"), "warn: none of its 16 virtual functions is enabled");
  EXPECT_THAT(answer("vgpu-types-offered"), HasSubstr("warn: "));
  const auto fix = [&] {
    const auto all = checks();
    return std::ranges::find(all, "vgpu-virtual-functions", &Check::id)->fix;
  };
  EXPECT_THAT(fix(), HasSubstr("`ferry vgpu apply` has them enabled"));
  kernel_.remove(mdev::host_driver_sign(vfio::PciAddress::parse(kGpu).value()));
  EXPECT_EQ(fix(), "none can be, before a vGPU host driver has taken the GPU");
}

class VirtualFunctionChecks : public VgpuChecks {
 protected:
  VirtualFunctionChecks() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:1eb8"}, .sriov = true});
    add_gpu("nvidia", 2);
    add_host_driver();
    kernel_.add_function({.address = kFirst,
                          .ids = "10de:1eb8",
                          .class_code = 0x030200,
                          .group = 60,
                          .driver = "nvidia",
                          .physical_function = kGpu});
  }
  /// Another one.
  void add_second(const std::string& driver, std::optional<unsigned> group = 61) {
    kernel_.add_function({.address = kSecond,
                          .ids = "10de:1eb8",
                          .class_code = 0x030200,
                          .group = group,
                          .driver = driver,
                          .physical_function = kGpu});
  }
  static constexpr const char* kFirst = "0000:05:00.4";
  static constexpr const char* kSecond = "0000:05:00.5";
};

TEST_F(VirtualFunctionChecks, WantThemOnTheirDriver) {
  add_second("nvidia");
  EXPECT_EQ(answer("vgpu-virtual-functions"), "pass: 2 virtual functions on drivers");
}

TEST_F(VirtualFunctionChecks, TellOneThatNoDriverTook) {
  add_second("");
  EXPECT_EQ(answer("vgpu-virtual-functions"),
            "fail: 1 of its virtual functions, the first 0000:05:00.5, without a driver");
}

TEST_F(VirtualFunctionChecks, TellOneOnVfio) {
  add_second("vfio-pci");
  EXPECT_EQ(
      answer("vgpu-virtual-functions"),
      "fail: 1 of its virtual functions, the first 0000:05:00.5, on vfio-pci, where no vGPU can be made");
}

TEST_F(VirtualFunctionChecks, TellOneInNoGroup) {
  add_second("nvidia", std::nullopt);
  EXPECT_EQ(answer("vgpu-virtual-functions"),
            "fail: 1 of its virtual functions, the first 0000:05:00.5, in no IOMMU group");
}

TEST_F(VgpuChecks, WantAnIommuForVirtualFunctions) {
  kernel_.add_function({.address = kGpu, .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
  EXPECT_THAT(answer("vgpu-iommu"), HasSubstr("warn: "));
  kernel_.add_function({.address = "0000:05:00.4",
                        .ids = "10de:1eb8",
                        .class_code = 0x030200,
                        .driver = "nvidia",
                        .physical_function = kGpu});
  EXPECT_THAT(answer("vgpu-iommu"), HasSubstr("fail: "));
}

TEST_F(VgpuChecks, SayOfAMissingIommuWhatAllElseSays) {
  kernel_.add_function({.address = kGpu, .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
  const auto fix = [&] {
    const Error none = vfio::require_iommu(vfio::scan(kernel_).value()).error();
    EXPECT_THAT(answer("vgpu-iommu"), HasSubstr("warn: " + none.message));
    const auto all = checks();
    const auto check = std::ranges::find(all, "vgpu-iommu", &Check::id);
    EXPECT_EQ(check->fix, none.hint);
    return check->fix;
  };
  EXPECT_THAT(fix(), HasSubstr("in the firmware setup"));
  kernel_.file("proc/cmdline", "root=/dev/sda1 iommu=off\n");
  EXPECT_THAT(fix(), HasSubstr("out of the kernel's command line"));
  kernel_.file("proc/cmdline", "root=/dev/sda1\n");
  kernel_.directory("sys/firmware/devicetree/base");
  EXPECT_THAT(fix(), HasSubstr("the device tree must name an SMMU"));
  kernel_.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n");
  EXPECT_THAT(fix(), HasSubstr("unset enable_unsafe_noiommu_mode"));
}

TEST_F(VgpuChecks, KnowVirtualFunctionsThatVmsGetWhole) {
  kernel_.file("proc/412/comm", "nvidia-smi\n");
  kernel_.add_driver({.name = "gim", .ids = {"1002:75a3"}, .sriov = true});
  kernel_.add_function({"1002:75a3", 0x120000}, kGpu, 5, "gim", 8);
  EXPECT_EQ(answer("vgpu-host-driver"), "pass: its driver gim makes vGPUs by whole virtual functions");
  EXPECT_EQ(answer("vgpu-virtual-functions"), "warn: none of its 8 virtual functions is enabled");
  EXPECT_THAT(answer("vgpu-manager-runs"), HasSubstr("pass: ")) << "NVIDIA's daemon is not for it";
  kernel_.enable_vfs(kGpu, 2);
  EXPECT_EQ(answer("vgpu-virtual-functions"), "pass: 2 virtual functions, 0 of them on VFIO drivers");
  EXPECT_EQ(answer("vgpu-types-offered"), "pass: by whole virtual functions; it carries 0 vGPUs");
}

TEST_F(VgpuChecks, NameAWriteThatHangsOnAGpuOrOnItsFunction) {
  kernel_.add_driver({.name = "gim", .ids = {"1002:75a3"}, .sriov = true});
  kernel_.add_function({"1002:75a3", 0x120000}, kGpu, 5, "gim", 8);
  kernel_.enable_vfs(kGpu, 2);
  const std::string function = kernel_.link_name("sys/bus/pci/devices/0000:05:00.0/virtfn1").value();
  EXPECT_EQ(answer("stuck-write"), "(none)");
  for (const std::string& device : {std::string(kGpu), function}) {
    test::must(record_stuck_write(kernel_, 700, "write /sys/bus/pci/drivers/gim/unbind", device));
    EXPECT_THAT(answer("stuck-write"), HasSubstr("fail: an earlier write to it, or to a virtual function"))
        << device;
  }
}

// Many processors have a GPU under xe or i915 whose SR-IOV is never used.
TEST_F(VgpuChecks, NeedNoIommuForAGpuThatHasNoVirtualFunctions) {
  kernel_.add_function({.address = kGpu, .ids = "10de:1eb8", .class_code = 0x030200, .driver = "nvidia"});
  mdev_.add_parent(kGpu);
  kernel_.add_driver({.name = "xe", .ids = {"8086:7d55"}, .sriov = true});
  kernel_.add_function(
      {.address = "0000:00:02.0", .ids = "8086:7d55", .class_code = 0x030000, .driver = "xe", .totalvfs = 7});
  EXPECT_THAT(answer("vgpu-iommu"), HasSubstr("warn: "));
}

TEST_F(VgpuChecks, LeaveOutAGpuWhoseDriverMakesNoVirtualFunctions) {
  add_t4();
  const auto add_intel = [&](const char* address, const char* driver, const char* ids) {
    kernel_.add_driver({.name = driver, .ids = {ids}, .sriov = true});
    kernel_.add_function(
        {.address = address, .ids = ids, .class_code = 0x030000, .driver = driver, .totalvfs = 7});
  };
  add_intel("0000:00:02.0", "i915", "8086:a780");
  EXPECT_EQ(answer("vgpu-accelerators"), "pass: 1 GPU in /sys/bus/pci/devices");
  add_intel("0000:03:00.0", "xe", "8086:e212");
  EXPECT_EQ(answer("vgpu-accelerators"), "pass: 2 GPUs in /sys/bus/pci/devices")
      << "the GPU under xe makes them, the one under i915 does not";
}

TEST_F(VgpuChecks, SayThatThereIsNoGpu) {
  EXPECT_THAT(answer("vgpu-accelerators"), HasSubstr("warn: none of the functions"));
}

}  // namespace
}  // namespace ferry::host
