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
constexpr const char* kOther = "0000:02:00.0";

/// Two GPUs on NVIDIA's driver, each with a card.
class ConsoleUseProbeTest : public testing::Test {
 protected:
  ConsoleUseProbeTest() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:2684"}});
    add(kGpu, 1);
    add(kOther, 2);
  }
  void add(const std::string& address, unsigned number) {
    kernel_.add_function({.address = address, .group = number, .driver = "nvidia"});
    kernel_.directory(device(address) + "/drm/card" + std::to_string(number));
    kernel_.directory(device(address) + "/drm/renderD" + std::to_string(127 + number));
  }
  static std::string device(const std::string& address) { return "sys/devices/pci0000:00/" + address; }
  void load(const std::map<std::string, std::string>& parameters) {
    kernel_.add_plain_module("nvidia_drm", parameters);
  }
  vfio::UseReport look() { return must(console_users(kernel_, questions_)); }
  std::vector<std::string> users() {
    std::vector<std::string> out;
    const vfio::UseReport report = look();
    for (const vfio::DeviceUser& user : report.of(kGpu)) {
      EXPECT_FALSE(user.only_a_screen()) << "unbinding under it never returns: no --force";
      out.push_back(user.text());
    }
    return out;
  }
  test::FakeKernel kernel_;
  std::vector<vfio::UseQuestion> questions_ = {
      {.device = kGpu, .nodes = {}}, {.device = "3f0c2f4e-5f0b-4a57-9d0a-2f1f3f5a7c11", .nodes = {}}};
};

// Without fbdev, or with a module that lacks it, there is no console, and the module has the GPU open all the
// same.
TEST_F(ConsoleUseProbeTest, FindsTheModuleByItsModeset) {
  for (const std::map<std::string, std::string>& others :
       {std::map<std::string, std::string>{}, {{"fbdev", "N"}}, {{"fbdev", "Y"}}}) {
    kernel_.remove("sys/module/nvidia_drm");
    auto parameters = others;
    parameters["modeset"] = "Y";
    load(parameters);
    EXPECT_THAT(users(), ElementsAre("kernel module nvidia_drm (modeset) holds /dev/dri/card1"));
    EXPECT_THAT(look().unknown, IsEmpty());
  }
}

TEST_F(ConsoleUseProbeTest, FindsTheModuleByItsFramebuffer) {
  load({});
  kernel_.link("sys/class/graphics/fb3/device", "../../../devices/pci0000:00/" + std::string(kGpu));
  EXPECT_THAT(users(), ElementsAre("kernel module nvidia_drm (modeset) holds /dev/fb3"));
}

TEST_F(ConsoleUseProbeTest, TellsTheOtherGpusThatTheModuleServes) {
  load({{"modeset", "Y"}, {"fbdev", "Y"}});
  const auto report = look();
  EXPECT_THAT(report.of(kGpu).front().also, ElementsAre(kOther));
}

class NoConsole : public ConsoleUseProbeTest,
                  public testing::WithParamInterface<std::map<std::string, std::string>> {};

TEST_P(NoConsole, IsNoUser) {
  load(GetParam());
  EXPECT_THAT(users(), IsEmpty());
  EXPECT_THAT(look().unknown, IsEmpty());
}

using Parameters = std::map<std::string, std::string>;
INSTANTIATE_TEST_SUITE_P(Parameters, NoConsole,
                         testing::Values(Parameters{}, Parameters{{"modeset", "N"}, {"fbdev", "Y"}},
                                         Parameters{{"modeset", ""}, {"fbdev", "?"}}));

TEST_F(ConsoleUseProbeTest, IsNotMovedByAModuleThatIsNotLoaded) {
  kernel_.link("sys/class/graphics/fb0/device", "../../../devices/pci0000:00/" + std::string(kGpu));
  EXPECT_THAT(users(), IsEmpty());
}

TEST_F(ConsoleUseProbeTest, IsNotMovedByAGpuWithoutACard) {
  load({{"modeset", "Y"}, {"fbdev", "Y"}});
  kernel_.remove(device(kGpu) + "/drm");
  EXPECT_THAT(users(), IsEmpty());
}

TEST_F(ConsoleUseProbeTest, FindsNothingOnAVfioDriver) {
  load({{"modeset", "Y"}, {"fbdev", "Y"}});
  kernel_.add_driver({.name = "vfio-pci", .vfio = true});
  ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/nvidia/unbind", kGpu));
  ASSERT_TRUE(kernel_.write(std::string("sys/bus/pci/devices/") + kGpu + "/driver_override", "vfio-pci"));
  ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/vfio-pci/bind", kGpu));
  EXPECT_THAT(users(), IsEmpty());
}

TEST_F(ConsoleUseProbeTest, SaysThatParametersCannotBeRead) {
  load({});
  kernel_.directory("sys/module/nvidia_drm/parameters/modeset");  // as unreadable as a mode that forbids it
  EXPECT_THAT(look().unknown, ElementsAre(HasSubstr("modeset of nvidia_drm cannot be read")));
}

}  // namespace
}  // namespace ferry::host
