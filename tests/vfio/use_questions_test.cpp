// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using test::at;
using test::FakeKernel;

std::vector<std::string> nodes(const UseQuestion& question) {
  std::vector<std::string> out;
  out.reserve(question.nodes.size());
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
  kernel.add_function({.address = "0000:02:00.0", .class_code = 0x0c0330, .group = 10});
  const std::string dir = "sys/devices/pci0000:00/0000:02:00.0";
  kernel.file(dir + "/drm/card1/dev", "226:1\n");
  kernel.file(dir + "/drm/card1/uevent", "MAJOR=226\nMINOR=1\nDEVNAME=dri/card1\nDEVTYPE=drm_minor\n");
  kernel.file(dir + "/usb3/3-1/3-1:1.0/host6/target6/6:0/block/sdb/dev", "8:16\n");
  kernel.file(dir + "/usb3/3-1/3-1:1.0/host6/target6/6:0/block/sdb/uevent", "DEVNAME=sdb\n");
  // A partition, behind as many hubs as USB allows.
  const std::string stick =
      dir + "/usb3/3-1/3-1.1/3-1.1.1/3-1.1.1.1/3-1.1.1.1.1/3-1.1.1.1.1:1.0/host7/target7/7:0/block/sdc/sdc1";
  kernel.file(stick + "/dev", "8:33\n");
  kernel.file(stick + "/uevent", "DEVNAME=sdc1\n");
  kernel.link(stick + "/subsystem", "/sys/class/block");
  kernel.file(stick + "/partition", "1\n");
  kernel.link(dir + "/usb3/3-1/3-1:1.0/host6/target6/6:0/block/sdb/subsystem",
              "../../../../../../../../../../../class/block");
  kernel.file(dir + "/broken/dev", "x\n");
  kernel.link(dir + "/loop", ".");
  kernel.file(dir + "/0000:03:00.0/drm/card2/dev", "226:2\n");  // another function below: not this one's
  const Inventory inventory = scan(kernel).value();
  const auto questions =
      use_questions(kernel, inventory, {at("0000:01:00.0"), at("0000:02:00.0"), at("0000:09:00.0")});
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].device, "0000:01:00.0");
  EXPECT_THAT(nodes(questions[0]), testing::ElementsAre("/dev/vfio/9 244:9"));
  EXPECT_THAT(
      nodes(questions[1]),
      testing::UnorderedElementsAre("/dev/dri/card1 226:1", "/dev/sdb block 8:16", "/dev/sdc1 block 8:33"));
  EXPECT_THAT(questions[0].attached, testing::IsEmpty());
  EXPECT_THAT(questions[1].attached, testing::ElementsAre("disk /dev/sdb"));
}

// `ip link set enp2s0 netns X` leaves the folder `net` empty. A driver without a link has no such folder.
TEST(UseQuestions, NameNetworkAdaptersOfEachFunction) {
  for (const std::uint32_t class_code : {0x0c0330U, 0x120000U}) {
    FakeKernel kernel;
    kernel.add_function({.address = "0000:02:00.0", .class_code = class_code, .group = 10});
    const std::string dir = "sys/devices/pci0000:00/0000:02:00.0/usb3/";
    kernel.directory(dir + "3-1/3-1:1.0/net/enp2s0");
    kernel.directory(dir + "3-2/3-2.4/3-2.4.2/3-2.4.2:1.0/net");
    kernel.directory(dir + "3-3/3-3:1.0");
    EXPECT_THAT(use_questions(kernel, scan(kernel).value(), {at("0000:02:00.0")}).at(0).attached,
                testing::UnorderedElementsAre("network adapter 3-1:1.0", "network adapter 3-2.4.2:1.0"));
  }
}

TEST(UseQuestions, NameTheNodeOfAGroupWithoutAnIommu) {
  FakeKernel kernel;
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  kernel.add_function({.address = "0000:01:00.0", .group = 5, .driver = "vfio-pci"});
  kernel.remove("sys/class/vfio/5");
  kernel.file("sys/class/vfio/noiommu-5/dev", "244:3\n");
  const auto questions = use_questions(kernel, scan(kernel).value(), {at("0000:01:00.0")});
  EXPECT_THAT(nodes(questions.at(0)), testing::ElementsAre("/dev/vfio/noiommu-5 244:3"));
}

TEST(UseQuestions, TakeNoNumberFromATextThatIsNone) {
  FakeKernel kernel;
  kernel.add_driver({.name = "vfio-pci", .vfio = true});
  kernel.add_function({.address = "0000:01:00.0", .group = 5, .driver = "vfio-pci"});
  for (const char* text : {"", ":", "1:", ":3", "1", "1:3:5", "1:3 ", "x1:3", "-1:3", "1:4294967296"}) {
    kernel.file("sys/class/vfio/5/dev", text);
    const auto questions = use_questions(kernel, scan(kernel).value(), {at("0000:01:00.0")});
    EXPECT_THAT(nodes(questions.at(0)), testing::IsEmpty()) << text;
  }
}

/// A disk in sysfs; returns its directory.
std::string add_disk(FakeKernel& kernel, const std::string& parent, const std::string& name,
                     const std::string& number) {
  std::string dir = parent + "/" + name;
  kernel.file(dir + "/dev", number + "\n");
  kernel.file(dir + "/uevent", "DEVNAME=" + name + "\n");
  kernel.link(dir + "/subsystem", "/sys/class/block");
  kernel.link("sys/class/block/" + name, "../../" + dir.substr(std::string("sys/").size()));
  return dir;
}

std::vector<std::string> nodes_of_disk_controller(const FakeKernel& kernel) {
  const auto questions = use_questions(kernel, scan(kernel).value(), {at("0000:02:00.0")});
  return nodes(questions.at(0));
}

TEST(UseQuestions, KnowANamespaceOfAnNvmeControllerForADisk) {
  FakeKernel kernel;
  kernel.add_function({.address = "0000:02:00.0", .group = 10});
  const std::string controller = "sys/devices/pci0000:00/0000:02:00.0/nvme/nvme0";
  kernel.file(controller + "/dev", "240:0\n");
  const std::string disk = add_disk(kernel, controller, "nvme0n1", "259:0");
  add_disk(kernel, disk, "nvme0n1p1", "259:1");
  EXPECT_THAT(
      nodes_of_disk_controller(kernel),
      testing::ElementsAre("/dev/nvme0 240:0", "/dev/nvme0n1 block 259:0", "/dev/nvme0n1p1 block 259:1"));
}

}  // namespace
}  // namespace ferry::vfio
