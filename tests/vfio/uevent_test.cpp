// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "vfio/pci/uevents.h"

namespace ferry::vfio {
namespace {

struct Message {
  std::string row;
  std::string fields;  // "|" for the zero byte
  bool concerns_us = false;
};
class UeventText : public testing::TestWithParam<Message> {};

TEST_P(UeventText, IsReadForWhatItSaysToUs) {
  std::string text = GetParam().fields;
  std::ranges::replace(text, '|', '\0');
  EXPECT_EQ(concerns_us(text), GetParam().concerns_us);
}

INSTANTIATE_TEST_SUITE_P(
    Table, UeventText,
    testing::Values(
        Message{"Bound",
                "bind@/devices/pci0000:00/0000:01:00.0|ACTION=bind|DEVPATH=/devices/pci0000:00/0000:01:00.0|"
                "SUBSYSTEM=pci|DRIVER=vfio-pci|PCI_CLASS=30000|PCI_ID=10DE:2684|PCI_SLOT_NAME=0000:01:00.0|"
                "SEQNUM=4711|",
                true},
        Message{"Unbound", "unbind@/devices/x|ACTION=unbind|SUBSYSTEM=pci|", true},
        Message{"VfioDevice", "add@/devices/x|ACTION=add|SUBSYSTEM=vfio-dev|", true},
        Message{"VfioGroup", "add@/devices/x|ACTION=add|SUBSYSTEM=vfio|", true},
        Message{"MediatedDevice", "bind@/devices/x|ACTION=bind|SUBSYSTEM=mdev|", true},
        Message{"Usb", "add@/devices/x|ACTION=add|SUBSYSTEM=usb|PCI_SLOT_NAME=0000:01:00.0|", false},
        Message{"LastFieldUnended", "bind@/devices/x|ACTION=bind|SUBSYSTEM=pci", true},
        Message{"KeysRunTogether", "ACTION=bindSUBSYSTEM=pciPCI_SLOT_NAME=0000:01:00.0", false},
        Message{"KeyInAValue", "add@/devices/x|ACTION=add|MODALIAS=SUBSYSTEM=pci|", false},
        Message{"LongerKey", "add@/devices/x|ACTION=add|THESUBSYSTEM=pci|", false},
        Message{"LongerValue", "add@/devices/x|ACTION=add|SUBSYSTEM=pci_bus|", false},
        Message{"Empty", "", false}, Message{"ZeroesOnly", "|||", false},
        Message{"Libudevs", "libudev|bytes that are no text|SUBSYSTEM", false}),
    [](const auto& row) { return row.param.row; });

/// True if events are sent to a child in namespaces of its own. Absent: this process may not make them.
std::optional<bool> are_sent_in(int namespaces) {
  constexpr int kUntried = 2;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(namespaces) != 0) ::_exit(kUntried);
    ::_exit(Uevents::are_sent() ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kUntried) return std::nullopt;
  return WEXITSTATUS(status) == 1;
}

// A container may have a user namespace: the socket opens there, and nothing comes.
TEST(Uevents, AreNotSentToANetworkNamespaceOfAnotherUserNamespace) {
  const auto sent = are_sent_in(CLONE_NEWUSER | CLONE_NEWNET);
  if (!sent) GTEST_SKIP() << "no namespaces can be made here";
  EXPECT_FALSE(*sent);
}

// The plugin's pod has such a network.
TEST(Uevents, AreSentToANetworkNamespaceOfTheSameUserNamespace) {
  for (const int namespaces : {CLONE_NEWNET, CLONE_NEWNET | CLONE_NEWPID, CLONE_NEWNET | CLONE_NEWIPC}) {
    const auto sent = are_sent_in(namespaces);
    if (!sent) GTEST_SKIP() << "no namespaces can be made here";
    EXPECT_EQ(*sent, Uevents::are_sent()) << namespaces;
  }
}

}  // namespace
}  // namespace ferry::vfio
