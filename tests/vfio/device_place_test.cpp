// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/scratch_directory.h"
#include "tests/vfio/machines.h"
#include "vfio/pci/device_facts.h"

namespace ferry::vfio {
namespace {

using test::at;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

TEST(DevicePlaceTest, IsTheSlotAndTheBridgesAboveIt) {
  const test::ScratchDirectory tree;
  tree.link("sys/bus/pci/devices/0000:3b:00.0", "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0");
  tree.file("sys/bus/pci/slots/3/address", "0000:3c:00\n");
  tree.file("sys/bus/pci/slots/4-1/address", "0000:3b:00\n");
  const HostFs host(tree.path());
  const DevicePlace place = read_place(host, at("0000:3b:00.0"));
  EXPECT_THAT(place.slot, Optional(std::string("4-1")));
  EXPECT_THAT(place.above, ElementsAre("pci0000:3a", "0000:3a:00.0"));
}

TEST(DevicePlaceTest, IsUnknownOfWhatIsNotThere) {
  const test::ScratchDirectory tree;
  const HostFs host(tree.path());
  const DevicePlace place = read_place(host, at("0000:3b:00.0"));
  EXPECT_FALSE(place.slot);
  EXPECT_THAT(place.above, IsEmpty());
}

}  // namespace
}  // namespace ferry::vfio
