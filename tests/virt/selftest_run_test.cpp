// SPDX-License-Identifier: Apache-2.0
// What can go wrong before a guest runs; a guest that runs is the virtual node's to test.
#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"
#include "tests/virt/test_libvirt.h"
#include "virt/selftest.h"

namespace ferry::virt {
namespace {

using testing::HasSubstr;

class SelftestRun : public testing::Test {
 protected:
  SelftestRun() {
    host_.add_driver({.name = "vfio-pci", .vfio = true});
    host_.add_function(
        {.address = "0000:01:00.0", .group = 9, .driver = "vfio-pci", .driver_override = "vfio-pci"});
    host_.file("boot/kernel", "");
    host_.file("boot/initrd", "");
  }
  Error error(const SelftestOptions& options) {
    auto report = selftest(host_, libvirt_.uri(), options);
    EXPECT_FALSE(report);
    EXPECT_THAT(host_.list("run/ferry").value_or(std::vector<std::string>{}), testing::IsEmpty());
    return report ? Error{} : report.error();
  }

  test::LibvirtHost libvirt_;
  test::FakeKernel host_;
  SelftestOptions options_{.devices = {"0000:01:00.0"}, .kernel = "/boot/kernel", .initrd = "/boot/initrd"};
};

TEST_F(SelftestRun, NeedsFilesThatLibvirtCanFind) {
  options_.kernel = "boot/kernel";
  EXPECT_EQ(error(options_).code, Errc::usage);
  EXPECT_THAT(error(options_).message, HasSubstr("kernel 'boot/kernel' is no absolute path"));
  options_.kernel = "/boot/none";
  EXPECT_EQ(error(options_).code, Errc::not_found);
  EXPECT_THAT(error(options_).message, HasSubstr("kernel /boot/none does not exist"));
  options_.kernel = "/boot/kernel";
  options_.initrd = "";
  EXPECT_EQ(error(options_).code, Errc::usage);
  EXPECT_THAT(error(options_).message, HasSubstr("initrd ''"));
}

TEST_F(SelftestRun, NeedsDevicesThatTheHostHas) {
  options_.devices = {"0000:02:00.0"};
  EXPECT_EQ(error(options_).code, Errc::not_found);
}

TEST_F(SelftestRun, SaysWhyTheVmDoesNotStartAndLeavesNothingBehind) {
  const Error refused = error(options_);  // the test driver runs no VMs of type qemu
  EXPECT_EQ(refused.code, Errc::failed);
  EXPECT_THAT(refused.message, HasSubstr("start the test VM ferry-selftest-"));
}

TEST_F(SelftestRun, SaysWhenLibvirtIsNotThere) {
  const auto report = selftest(host_, "", options_);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Errc::unreachable);
}

}  // namespace
}  // namespace ferry::virt
