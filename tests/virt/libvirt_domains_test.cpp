// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tests/support/must.h"
#include "tests/virt/test_libvirt.h"
#include "virt/connection.h"

namespace ferry::virt {
namespace {

using test::must;
using testing::ElementsAre;
using testing::HasSubstr;

class LibvirtDomains : public testing::Test {
 protected:
  test::LibvirtHost tree_;
  HostFs host_{tree_.path()};
};

TEST_F(LibvirtDomains, ListsTheRunningOnesWithWhatTheyHave) {
  const Connection connection = must(connect(host_, tree_.uri()));
  const Domain gpu{.name = "gpu-vm",
                   .uuid = "6c9a1f0e-7c39-5f9e-8a55-0d4a3d7b5f10",
                   .pid = 412,
                   .pci = {must(vfio::PciAddress::parse("0000:65:00.1"))},
                   .mdev = {"5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10"}};
  const Domain plain{
      .name = "plain", .uuid = "11111111-7c39-5f9e-8a55-0d4a3d7b5f10", .pid = {}, .pci = {}, .mdev = {}};
  EXPECT_THAT(must(list_running_domains(host_, connection)), ElementsAre(gpu, plain));
}

TEST_F(LibvirtDomains, SayWhichUriIsNotReachableAndWhatToDo) {
  const auto connection = connect(host_, "");
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Errc::unreachable);
  const std::string socket = (tree_.path() / "run/libvirt/libvirt-sock-ro").string();
  EXPECT_THAT(connection.error().message, HasSubstr("connect to libvirt at qemu:///system?socket=" + socket));
  EXPECT_THAT(connection.error().message, HasSubstr("No such file or directory"));
  EXPECT_THAT(connection.error().hint, HasSubstr("systemctl start libvirtd"));
}

TEST_F(LibvirtDomains, AreAskedOfTheQemuDaemonWhereThatOneRuns) {
  tree_.file("run/libvirt/virtqemud-sock-ro", "");
  const auto connection = connect(host_, "");
  ASSERT_FALSE(connection);
  EXPECT_THAT(connection.error().message, HasSubstr("run/libvirt/virtqemud-sock-ro"));
}

TEST_F(LibvirtDomains, SayWhenTheUriIsNone) {
  const auto connection = connect(host_, "nonsense://x");
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Errc::unreachable);
  EXPECT_THAT(connection.error().message, HasSubstr("nonsense://x"));
  EXPECT_THAT(connection.error().message, testing::Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace ferry::virt
