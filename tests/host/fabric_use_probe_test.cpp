// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/fake_kernel.h"
#include "tests/support/must.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class FabricUseProbeTest : public testing::Test {
 protected:
  FabricUseProbeTest() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:2330", "10de:22a3"}});
    kernel_.add_function({.address = "0000:1b:00.0",
                          .ids = "10de:2330",
                          .class_code = 0x030200,
                          .group = 1,
                          .driver = "nvidia"});
  }
  void add_switch(const std::string& driver) {
    kernel_.add_function({.address = "0000:05:00.0",
                          .ids = "10de:22a3",
                          .class_code = 0x068000,
                          .group = 2,
                          .driver = driver});
  }
  void run(const std::string& name) { kernel_.file("proc/812/comm", name + "\n"); }
  std::vector<std::string> users() {
    const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                       .classes = {vfio::PciClass::display_3d},
                                       .on_request = {vfio::PciClass::bridge_other}};
    const std::vector<vfio::UseQuestion> questions = {{.device = "0000:1b:00.0", .nodes = {}},
                                                      {.device = "0000:05:00.0", .nodes = {}}};
    const vfio::UseReport report = test::must(fabric_users(kernel_, rules, questions));
    std::vector<std::string> out;
    for (const vfio::DeviceUser& user : report.of("0000:1b:00.0")) out.push_back(user.text());
    std::vector<std::string> of_switch;
    for (const vfio::DeviceUser& user : report.of("0000:05:00.0")) of_switch.push_back(user.text());
    EXPECT_EQ(out, of_switch) << "its nodes do not tell who uses a switch";
    return out;
  }
  test::FakeKernel kernel_;
};

TEST_F(FabricUseProbeTest, IsWhatTheDoctorAsksFor) {
  const auto check = [this] {
    const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                       .classes = {vfio::PciClass::display_3d},
                                       .on_request = {vfio::PciClass::bridge_other}};
    return fabric_check(kernel_, test::must(vfio::scan(kernel_)), rules);
  };
  EXPECT_FALSE(check()) << "the host has no switch";
  add_switch("nvidia");
  EXPECT_EQ(check().value_or(Check{}).verdict, Verdict::unknown) << "no process is seen";
  kernel_.file("proc/1/comm", "systemd\n");
  for (const char* driver : {"nvidia", ""}) {
    add_switch(driver);
    const auto without = check();
    ASSERT_TRUE(without);
    EXPECT_EQ(without->verdict, Verdict::warn) << driver;
    EXPECT_THAT(without->found, testing::HasSubstr("no nv-fabricmanager runs"));
    EXPECT_THAT(without->why, testing::HasSubstr("802"));
  }
  add_switch("vfio-pci");
  EXPECT_EQ(check().value_or(Check{}).verdict, Verdict::pass) << "the VM has a manager of its own";
  add_switch("nvidia");
  run("nv-fabricmanage");
  kernel_.file("run/nvidia/driver/usr/share/nvidia/nvswitch/fabricmanager.cfg", "FABRIC_MODE=1\n");
  EXPECT_THAT(check().value_or(Check{}).found, testing::HasSubstr("(pid 812) runs in mode 1 for 1 NVSwitch"));
}

TEST_F(FabricUseProbeTest, FindsGpusOfAFabricWhoseManagerRuns) {
  add_switch("nvidia");
  run("nv-fabricmanage");
  EXPECT_THAT(users(),
              ElementsAre("fabric manager nv-fabricmanager (pid 812) holds the NVLink fabric (1 switch)"));
}

TEST_F(FabricUseProbeTest, FindsNothingWithoutTheManager) {
  add_switch("nvidia");
  run("nv-hostengine");
  EXPECT_THAT(users(), IsEmpty());
}

TEST_F(FabricUseProbeTest, FindsNothingWhereTheSwitchesAreAServiceVms) {
  run("nv-fabricmanage");
  add_switch("vfio-pci");
  EXPECT_THAT(users(), IsEmpty());
}

TEST_F(FabricUseProbeTest, FindsGpusOfAFabricWhoseSwitchesPciDoesNotShow) {
  const auto gpus_users = [&] {
    const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                       .classes = {vfio::PciClass::display_3d},
                                       .on_request = {vfio::PciClass::bridge_other}};
    const std::vector<vfio::UseQuestion> questions = {{.device = "0000:1b:00.0", .nodes = {}}};
    std::vector<std::string> out;
    const vfio::UseReport report = test::must(fabric_users(kernel_, rules, questions));
    for (const vfio::DeviceUser& user : report.of("0000:1b:00.0")) out.push_back(user.text());
    return out;
  };
  EXPECT_THAT(gpus_users(), IsEmpty());
  run("nv-fabricmanage");
  EXPECT_THAT(gpus_users(), ElementsAre("fabric manager nv-fabricmanager (pid 812) holds the NVLink fabric "
                                        "(whose switches are no PCI functions)"));
}

}  // namespace
}  // namespace ferry::host
