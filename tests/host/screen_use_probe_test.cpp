// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGpu = "0000:01:00.0";
constexpr std::string_view kRanges =
    "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n"
    "0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n";

class ScreenUseProbeTest : public testing::Test {
 protected:
  vfio::UseReport look() { return must(screen_users(kernel_, questions_)); }
  std::vector<std::string> users() {
    std::vector<std::string> out;
    const vfio::UseReport report = look();
    for (const vfio::DeviceUser& user : report.of(kGpu)) {
      EXPECT_TRUE(user.only_a_screen());
      out.push_back(user.text());
    }
    return out;
  }
  void claim(const std::string& line) {
    kernel_.file(std::string("sys/devices/pci0000:00/") + kGpu + "/resource", kRanges);
    kernel_.file("proc/iomem", "e0000000-f0ffffff : PCI Bus 0000:01\n" + line);
  }
  test::FakeKernel kernel_;
  std::vector<vfio::UseQuestion> questions_ = {
      {.device = kGpu, .nodes = {}}, {.device = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11", .nodes = {}}};
};

TEST_F(ScreenUseProbeTest, FindsTheBootDisplay) {
  kernel_.add_function({.address = kGpu, .group = 1, .boot_display = true});
  EXPECT_THAT(users(), ElementsAre("the host's boot display"));
}

TEST_F(ScreenUseProbeTest, FindsTheFirmwaresFramebufferInABar) {
  kernel_.add_function({.address = kGpu, .group = 1});
  claim("  e0000000-e02fffff : BOOTFB\n");
  EXPECT_THAT(users(), ElementsAre("the firmware's framebuffer BOOTFB lies in its memory"));
}

TEST_F(ScreenUseProbeTest, IsNotMovedByAFramebufferElsewhereOrADriversOwn) {
  kernel_.add_function({.address = kGpu, .group = 1});
  claim("  c0000000-c02fffff : BOOTFB\n  e0000000-e02fffff : nouveau\n");
  EXPECT_THAT(users(), IsEmpty());
}

TEST_F(ScreenUseProbeTest, SaysThatAddressesAreHidden) {
  kernel_.add_function({.address = kGpu, .group = 1});
  claim("");
  kernel_.file("proc/iomem", "00000000-00000000 : PCI Bus 0000:01\n  00000000-00000000 : BOOTFB\n");
  EXPECT_THAT(look().unknown, ElementsAre(HasSubstr("/proc/iomem hides all addresses")));
}

TEST_F(ScreenUseProbeTest, SaysThatTheMemoryMapCannotBeRead) {
  kernel_.add_function({.address = kGpu, .group = 1});
  claim("");
  kernel_.remove("proc/iomem");
  EXPECT_THAT(look().unknown, ElementsAre(HasSubstr("/proc/iomem")));
  kernel_.directory("proc/iomem");  // whatever the reason is
  EXPECT_THAT(look().unknown, ElementsAre(HasSubstr("/proc/iomem")));
}

TEST_F(ScreenUseProbeTest, SaysThatBarsCannotBeRead) {
  kernel_.add_function({.address = kGpu, .group = 1});
  kernel_.directory(std::string("sys/devices/pci0000:00/") + kGpu + "/resource");
  EXPECT_THAT(look().unknown, ElementsAre(HasSubstr("/resource")));
}

// Once it is on vfio nothing is shown there any more, so nothing keeps it from going back.
TEST_F(ScreenUseProbeTest, FindsNothingOnAVfioDriver) {
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  kernel_.add_function({.address = kGpu, .group = 1, .driver = "vfio-pci", .boot_display = true});
  claim("  e0000000-e02fffff : BOOTFB\n");
  EXPECT_THAT(users(), IsEmpty());
}

}  // namespace
}  // namespace ferry::host
