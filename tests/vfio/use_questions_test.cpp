// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry {
namespace {

using test::at;
using test::FakeKernel;

std::vector<std::string> nodes(const UseQuestion& question) {
  std::vector<std::string> out;
  for (const DeviceNode& node : question.nodes) {
    out.push_back(node.name + (node.block ? " block " : " ") + std::to_string(node.number.major) + ":" +
                  std::to_string(node.number.minor));
  }
  return out;
}

TEST(UseQuestions, NameEveryNodeBelowAFunctionAndTheNodeOfItsGroup) {
  FakeKernel kernel;
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  kernel.add_function(
      {.address = "0000:01:00.0", .group = 9, .driver = "vfio-pci", .driver_override = "vfio-pci"});
  kernel.add_function({.address = "0000:02:00.0", .group = 10});
  const std::string dir = "sys/devices/pci0000:00/0000:02:00.0";
  kernel.file(dir + "/drm/card1/dev", "226:1\n");
  kernel.file(dir + "/drm/card1/uevent", "MAJOR=226\nMINOR=1\nDEVNAME=dri/card1\nDEVTYPE=drm_minor\n");
  kernel.file(dir + "/usb3/3-1/3-1:1.0/host6/target6/6:0/block/sdb/dev", "8:16\n");
  kernel.file(dir + "/usb3/3-1/3-1:1.0/host6/target6/6:0/block/sdb/uevent", "DEVNAME=sdb\n");
  kernel.file(dir + "/broken/dev", "x\n");
  kernel.link(dir + "/loop", ".");
  kernel.file(dir + "/0000:03:00.0/drm/card2/dev", "226:2\n");  // another function below: not this one's
  const Inventory inventory = scan(kernel).value();
  const auto questions =
      use_questions(kernel, inventory, {at("0000:01:00.0"), at("0000:02:00.0"), at("0000:09:00.0")});
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].device, "0000:01:00.0");
  EXPECT_THAT(nodes(questions[0]), testing::ElementsAre("/dev/vfio/9 244:9"));
  EXPECT_THAT(nodes(questions[1]), testing::ElementsAre("/dev/dri/card1 226:1", "/dev/sdb block 8:16"));
}

}  // namespace
}  // namespace ferry
