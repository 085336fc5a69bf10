// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ModuleUseProbeTest : public testing::Test {
 protected:
  ModuleUseProbeTest() {
    tree_.link("sys/bus/pci/devices/0000:17:00.0/driver", "../../../bus/pci/drivers/nvidia");
    tree_.link("sys/bus/pci/devices/0000:18:00.0/driver", "../../../bus/pci/drivers/vfio-pci");
    for (const std::string name : {"nvidia_drm", "nvidia_modeset", "nvidia_uvm"}) hold(name);
  }
  void hold(const std::string& name) { tree_.directory("sys/module/nvidia/holders/" + name); }
  std::vector<std::string> notes(const std::string& device) {
    const HostFs host(tree_.path());
    const vfio::UseReport report =
        test::must(module_users(host, std::vector<vfio::UseQuestion>{{.device = device, .nodes = {}}}));
    EXPECT_THAT(report.users, IsEmpty());
    EXPECT_EQ(report.blind, "") << "a note keeps no GPU";
    return report.unknown;
  }
  test::ScratchDirectory tree_;
};

TEST_F(ModuleUseProbeTest, NamesThoseThatNoProcessIsSeenThrough) {
  EXPECT_THAT(notes("0000:17:00.0"), IsEmpty());
  hold("nvidia_peermem");
  hold("gdrdrv");
  EXPECT_THAT(notes("0000:17:00.0"), ElementsAre("which GPU these modules use: gdrdrv, nvidia_peermem"));
}

TEST_F(ModuleUseProbeTest, SaysNothingOfDevicesOnOtherDrivers) {
  hold("nvidia_peermem");
  EXPECT_THAT(notes("0000:18:00.0"), IsEmpty());
  EXPECT_THAT(notes("0000:19:00.0"), IsEmpty());
}

TEST_F(ModuleUseProbeTest, SaysThatTheyCannotBeListed) {
  tree_.remove("sys/module/nvidia/holders");
  EXPECT_THAT(notes("0000:17:00.0"), IsEmpty());
  tree_.file("sys/module/nvidia/holders", "");
  EXPECT_THAT(notes("0000:17:00.0"),
              ElementsAre(HasSubstr("modules that use nvidia: open /sys/module/nvidia")));
}

}  // namespace
}  // namespace ferry::host
