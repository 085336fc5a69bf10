// SPDX-License-Identifier: Apache-2.0
#include "vfio/uevent.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>

namespace ferry {
namespace {

struct Message {
  std::string row;
  std::string fields;  // "|" for the zero byte
  bool concerns_us = false;
  std::string bound;
};
class UeventText : public testing::TestWithParam<Message> {};

TEST_P(UeventText, IsReadForWhatItSaysToUs) {
  std::string text = GetParam().fields;
  std::ranges::replace(text, '|', '\0');
  const auto event = parse_uevent(text);
  EXPECT_EQ(event.concerns_us, GetParam().concerns_us);
  EXPECT_EQ(event.bound ? event.bound->text() : "", GetParam().bound);
}

INSTANTIATE_TEST_SUITE_P(
    Table, UeventText,
    testing::Values(
        Message{"Bound",
                "bind@/devices/pci0000:00/0000:01:00.0|ACTION=bind|DEVPATH=/devices/pci0000:00/0000:01:00.0|"
                "SUBSYSTEM=pci|DRIVER=vfio-pci|PCI_CLASS=30000|PCI_ID=10DE:2684|PCI_SLOT_NAME=0000:01:00.0|"
                "SEQNUM=4711|",
                true, "0000:01:00.0"},
        Message{"BoundByAWriteToItsUeventFile",
                "bind@/devices/x|ACTION=bind|SUBSYSTEM=pci|SYNTH_UUID=0|PCI_SLOT_NAME=0000:01:00.0|", true,
                ""},
        Message{"Unbound", "unbind@/devices/x|ACTION=unbind|SUBSYSTEM=pci|PCI_SLOT_NAME=0000:01:00.0|", true,
                ""},
        Message{"Added", "add@/devices/x|ACTION=add|SUBSYSTEM=pci|PCI_SLOT_NAME=0000:01:00.0|", true, ""},
        Message{"VfioDevice", "add@/devices/x|ACTION=add|SUBSYSTEM=vfio-dev|", true, ""},
        Message{"MediatedDevice", "bind@/devices/x|ACTION=bind|SUBSYSTEM=mdev|", true, ""},
        Message{"AnothersAddress", "bind@/devices/x|ACTION=bind|SUBSYSTEM=usb|PCI_SLOT_NAME=0000:01:00.0|",
                false, ""},
        Message{"Usb", "add@/devices/x|ACTION=add|SUBSYSTEM=usb|", false, ""},
        Message{"LastFieldUnended", "bind@/devices/x|ACTION=bind|PCI_SLOT_NAME=0000:01:00.0|SUBSYSTEM=pci",
                true, "0000:01:00.0"},
        Message{"NoAddress", "bind@/devices/x|ACTION=bind|SUBSYSTEM=pci|", true, ""},
        Message{"AddressThatIsNone", "bind@/devices/x|ACTION=bind|SUBSYSTEM=pci|PCI_SLOT_NAME=../x|", true,
                ""},
        Message{"AddressCutShort", "bind@/devices/x|ACTION=bind|SUBSYSTEM=pci|PCI_SLOT_NAME=0000:01:|", true,
                ""},
        Message{"KeysRunTogether", "ACTION=bindSUBSYSTEM=pciPCI_SLOT_NAME=0000:01:00.0", false, ""},
        Message{"KeyInAValue", "add@/devices/x|ACTION=add|MODALIAS=SUBSYSTEM=pci|", false, ""},
        Message{"Empty", "", false, ""}, Message{"ZeroesOnly", "|||", false, ""},
        Message{"Libudevs", "libudev|bytes that are no text|SUBSYSTEM", false, ""}),
    [](const auto& row) { return row.param.row; });

}  // namespace
}  // namespace ferry
