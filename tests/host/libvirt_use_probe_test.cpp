// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/use_probes.h"
#include "tests/support/must.h"
#include "tests/support/scratch_directory.h"

namespace ferry::host {
namespace {

using namespace std::chrono_literals;
using test::must;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kUuid = "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10";

class LibvirtUseProbeTest : public testing::Test {
 protected:
  /// A ferry-virt that gives this answer.
  void answer(const std::string& shell) const {
    tree_.file("ferry-virt", "#!/bin/sh\n" + shell + "\n");
    std::filesystem::permissions(tree_.path() / "ferry-virt", std::filesystem::perms(0755));
  }
  vfio::UseReport look(const std::vector<std::string>& devices, std::chrono::milliseconds deadline = 20s) {
    std::vector<vfio::UseQuestion> questions;
    questions.reserve(devices.size());
    for (const std::string& device : devices) questions.push_back({.device = device, .nodes = {}});
    return must(libvirt_users(host_, {.program = tree_.path() / "ferry-virt", .host_root = host_.root()},
                              questions, deadline));
  }
  test::ScratchDirectory tree_;
  HostFs host_{tree_.path()};
};

TEST_F(LibvirtUseProbeTest, NamesTheDomainsThatHaveADevice) {
  tree_.file("run/libvirt/libvirt-sock", "");
  answer(std::string(
             R"(echo '{"domains":[{"name":"a","uuid":"u","pid":412,"pci":["0000:01:00.0"],"mdev":[]},)") +
         R"({"name":"b","uuid":"v","pci":["0000:02:00.0"],"mdev":[")" + kUuid + R"("]}]}')");
  const vfio::UseReport report = look({"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", kUuid});
  ASSERT_EQ(report.of("0000:01:00.0").size(), 1U);
  EXPECT_EQ(report.of("0000:01:00.0")[0].kind, vfio::DeviceUser::Kind::virtual_machine);
  EXPECT_EQ(report.of("0000:01:00.0")[0].text(), "VM a (pid 412) holds 0000:01:00.0 as a host device");
  EXPECT_EQ(report.of("0000:02:00.0")[0].text(), "VM b holds 0000:02:00.0 as a host device");
  EXPECT_EQ(report.of(kUuid)[0].name, "b");
  EXPECT_THAT(report.of("0000:03:00.0"), IsEmpty());
  EXPECT_THAT(report.unknown, IsEmpty());
}

TEST_F(LibvirtUseProbeTest, AsksNobodyWhereThereIsNoLibvirt) {
  answer("touch " + (tree_.path() / "asked").string());
  EXPECT_THAT(look({"0000:01:00.0"}).unknown, IsEmpty());
  EXPECT_FALSE(host_.exists("asked"));
  tree_.file("run/libvirt/virtqemud-sock", "");
  look({});
  EXPECT_FALSE(host_.exists("asked"));
  look({"0000:01:00.0"});
  EXPECT_TRUE(host_.exists("asked"));
}

TEST_F(LibvirtUseProbeTest, DoesNotKnowWhenLibvirtDoesNotAnswer) {
  tree_.file("run/libvirt/virtqemud-sock", "");
  answer("exec sleep 100");
  const vfio::UseReport report = look({"0000:01:00.0"}, 100ms);
  EXPECT_THAT(report.unknown, ElementsAre("libvirt: ferry-virt: no answer in 100 ms"));
  EXPECT_THAT(report.users, IsEmpty());
}

TEST_F(LibvirtUseProbeTest, DoesNotKnowWhenLibvirtFails) {
  tree_.file("run/libvirt/libvirt-sock", "");
  answer(R"(echo '{"error":{"code":"unreachable","message":"connect to libvirt at x: refused"}}'; exit 1)");
  EXPECT_THAT(look({"0000:01:00.0"}).unknown, ElementsAre("libvirt: connect to libvirt at x: refused"));
}

}  // namespace
}  // namespace ferry::host
