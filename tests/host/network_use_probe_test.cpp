// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> links_up(const std::string& flags, const std::string& where = "net") {
  const test::ScratchDirectory tree;
  tree.file("sys/bus/pci/devices/0000:02:00.0/" + where + "/enp2s0/flags", flags);
  const HostFs host(tree.path());
  const std::vector<vfio::UseQuestion> questions = {{.device = "0000:02:00.0", .nodes = {}},
                                                    {.device = "0000:03:00.0", .nodes = {}}};
  const vfio::UseReport report = test::must(network_users(host, questions));
  EXPECT_THAT(report.of("0000:03:00.0"), IsEmpty());
  std::vector<std::string> out;
  for (const vfio::DeviceUser& user : report.of("0000:02:00.0")) out.push_back(user.text());
  return out;
}

TEST(NetworkUseProbe, FindsALinkThatIsUp) {
  EXPECT_THAT(links_up("0x1003\n"), ElementsAre("network link enp2s0 is up"));
}

TEST(NetworkUseProbe, FindsALinkBelowADeviceOfTheFunction) {
  for (const char* where :
       {"virtio3/net", "usb3/3-1/3-1:1.0/net", "usb3/3-1/3-1.4/3-1.4.2/3-1.4.2:1.0/net"}) {
    EXPECT_THAT(links_up("0x1003\n", where), ElementsAre("network link enp2s0 is up")) << where;
  }
}

TEST(NetworkUseProbe, LetsALinkThatIsDownGo) {
  EXPECT_THAT(links_up("0x1002\n"), IsEmpty());
}

// As `ip link set enp2s0 netns X` leaves it. Without a link a driver has no directory `net` at all.
TEST(NetworkUseProbe, FindsALinkInAnotherNetworkNamespace) {
  const test::ScratchDirectory tree;
  tree.directory("sys/bus/pci/devices/0000:02:00.0/net");
  tree.directory("sys/bus/pci/devices/0000:03:00.0/usb3/3-1/3-1:1.0/net");
  tree.file("sys/bus/pci/devices/0000:04:00.0/class", "0x020000");
  tree.directory("sys/bus/pci/devices/0000:04:00.0/virtio3");
  const HostFs host(tree.path());
  const std::vector<vfio::UseQuestion> questions = {{.device = "0000:02:00.0", .nodes = {}},
                                                    {.device = "0000:03:00.0", .nodes = {}},
                                                    {.device = "0000:04:00.0", .nodes = {}}};
  const vfio::UseReport report = test::must(network_users(host, questions));
  for (const char* held : {"0000:02:00.0", "0000:03:00.0"}) {
    ASSERT_EQ(report.of(held).size(), 1U) << held;
    EXPECT_EQ(report.of(held)[0].text(), "a network link of it is in another network namespace");
    EXPECT_EQ(report.of(held)[0].remedy(),
              "give the link back first: end the container or namespace that has it");
  }
  EXPECT_THAT(report.of("0000:04:00.0"), IsEmpty());
}

TEST(NetworkUseProbe, TakesWhatItCannotReadForUp) {
  for (const char* flags : {"", "up\n", "0x\n", "\xff\xfe"}) EXPECT_EQ(links_up(flags).size(), 1U) << flags;
}

}  // namespace
}  // namespace ferry::host
