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
    kernel_.add_function(test::kinds::kH100, "0000:1b:00.0", 1, "nvidia");
  }
  void add_switch(const std::string& driver) {
    kernel_.add_function(test::kinds::kNvSwitch, "0000:05:00.0", 2, driver);
  }
  void run(const std::string& name) { kernel_.file("proc/812/comm", name + "\n"); }
  std::vector<std::string> users() {
    const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                       .classes = {vfio::PciClass::display_3d},
                                       .on_request = {vfio::PciClass::bridge_other}};
    const std::vector<vfio::UseQuestion> questions = {{.device = "0000:1b:00.0", .nodes = {}},
                                                      {.device = "0000:05:00.0", .nodes = {}}};
    const vfio::UseReport report = fabric_users(kernel_, test::must(vfio::scan(kernel_)), rules, questions);
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

TEST_F(FabricUseProbeTest, TakesNoProgramOfAPodForTheManager) {
  add_switch("nvidia");
  run("nv-fabricmanage");
  kernel_.directory("run/nvidia/driver");
  kernel_.directory("containers/a");
  kernel_.link("proc/1/root", "../..");
  const auto found = [&](const char* root, const std::string& cgroup) {
    kernel_.file("proc/812/cgroup", cgroup + "\n");
    if (root != nullptr) kernel_.link("proc/812/root", root);
    return !users().empty();
  };
  const std::string pod =
      "0::/kubepods.slice/kubepods-besteffort.slice/"
      "kubepods-besteffort-pod0f2c4e5f_1b2c_4d5e_8f90_a1b2c3d4e5f6.slice/cri-containerd-a.scope";
  EXPECT_TRUE(found(nullptr, pod)) << "its root cannot be seen";
  EXPECT_FALSE(found("../../containers/a", pod));
  EXPECT_TRUE(found("../../run/nvidia/driver", pod)) << "the driver's container";
  EXPECT_TRUE(found("../..", pod)) << "a pod that works in the host's root";
  EXPECT_TRUE(found("../../containers/a", "0::/system/fabricmanager")) << "a container of the host";
}

TEST_F(FabricUseProbeTest, KnowsTheModeByTheManagersOwnFile) {
  using namespace std::string_literals;
  struct Row {
    std::string options;  ///< of the manager, with a NUL after each
    std::string file;
    std::string text;
    std::string mode;
  };
  const std::string usual = "usr/share/nvidia/nvswitch/fabricmanager.cfg";
  const std::string unknown = "a mode that is not known";
  const std::vector<Row> rows = {
      {"", usual, "FABRIC_MODE=0\n", "mode 0"},
      {"", usual, "#FABRIC_MODE=1\nFABRIC_MODE_RESTART=1\n", "mode 0"},
      {"", usual, " FABRIC_MODE = 1 \n", "mode 1"},
      {"", usual, "FABRIC_MODE=2 # shared\n", "mode 2"},
      {"", usual, "FABRIC_MODE=shared\n", unknown},
      {"", usual, "FABRIC_MODE=\n", unknown},
      {"-c\0/etc/nvidia/fm.cfg\0"s, "etc/nvidia/fm.cfg", "FABRIC_MODE=1\n", "mode 1"},
      {"--config\0/etc/fm.cfg\0"s, "run/nvidia/driver/etc/fm.cfg", "FABRIC_MODE=1\n", "mode 1"},
      {"--config=/etc/fm.cfg\0"s, "etc/fm.cfg", "LOG_LEVEL=4\n", "mode 0"},
      {"-c\0/etc/fm.cfg\0"s, usual, "FABRIC_MODE=0\n", unknown},
  };
  add_switch("nvidia");
  kernel_.add_function(test::kinds::kNvSwitch, "0000:06:00.0", 3, "vfio-pci");
  run("nv-fabricmanage");
  const vfio::AcceleratorRules rules{.vendors = {0x10de},
                                     .classes = {vfio::PciClass::display_3d},
                                     .on_request = {vfio::PciClass::bridge_other}};
  const std::vector<vfio::UseQuestion> questions = {{.device = "0000:06:00.0", .nodes = {}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.options + ": " + row.text);
    kernel_.file("proc/812/cmdline", "/usr/bin/nv-fabricmanager\0"s + row.options);
    kernel_.file(row.file, row.text);
    const auto check = fabric_check(kernel_, test::must(vfio::scan(kernel_)), rules);
    EXPECT_THAT(check.value_or(Check{}).found,
                testing::HasSubstr("runs in " + row.mode + " for 2 NVSwitches"));
    const auto report = fabric_users(kernel_, test::must(vfio::scan(kernel_)), rules, questions);
    EXPECT_EQ(report.of("0000:06:00.0").empty(), row.mode == "mode 0") << "the one on vfio-pci";
    kernel_.remove(row.file);
  }
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
    const vfio::UseReport report = fabric_users(kernel_, test::must(vfio::scan(kernel_)), rules, questions);
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
