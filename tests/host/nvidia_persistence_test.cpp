// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/system/nvidia_driver.h"
#include "tests/support/fake_kernel.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const vfio::PciAddress kGpu = vfio::PciAddress::parse("0000:01:00.0").value();

class NvidiaPersistenceTest : public testing::Test {
 protected:
  NvidiaPersistenceTest() {
    kernel_.on_run([this](const HostCommand& command) {
      run_.push_back(command.root.string() + ": " + command.text());
      device_ = command.device;
      return status_;
    });
  }
  void install(const std::string& root) {
    kernel_.file(root + "usr/bin/nvidia-smi", "");
    kernel_.file(root + "run/nvidia-persistenced/socket", "");
  }
  test::FakeKernel kernel_;
  std::vector<std::string> run_;
  std::string device_;
  int status_ = 0;
};

TEST_F(NvidiaPersistenceTest, RunsTheHostsTool) {
  install("");
  install("run/nvidia/driver/");
  const auto persistence = nvidia_persistence(kernel_, kernel_);
  ASSERT_NE(persistence, nullptr);
  EXPECT_TRUE(persistence->set(kGpu, false));
  EXPECT_TRUE(persistence->set(kGpu, true));
  EXPECT_THAT(run_, ElementsAre(": /usr/bin/nvidia-smi -i 0000:01:00.0 -pm 0",
                                ": /usr/bin/nvidia-smi -i 0000:01:00.0 -pm 1"));
  EXPECT_EQ(device_, "0000:01:00.0") << "whom a record names if it hangs";
}

TEST_F(NvidiaPersistenceTest, RunsTheDriverContainersTool) {
  install("run/nvidia/driver/");
  EXPECT_TRUE(nvidia_persistence(kernel_, kernel_)->set(kGpu, false));
  EXPECT_THAT(run_, ElementsAre("run/nvidia/driver: /usr/bin/nvidia-smi -i 0000:01:00.0 -pm 0"));
}

TEST_F(NvidiaPersistenceTest, IsNoneWithoutTheTool) {
  EXPECT_EQ(nvidia_persistence(kernel_, kernel_), nullptr);
}

TEST_F(NvidiaPersistenceTest, SetsNothingWithoutTheDaemon) {
  kernel_.file("usr/bin/nvidia-smi", "");
  const auto persistence = nvidia_persistence(kernel_, kernel_);
  ASSERT_NE(persistence, nullptr);
  EXPECT_EQ(persistence->set(kGpu, false).error().code, Errc::unreachable);
  EXPECT_TRUE(persistence->set(kGpu, true));
  EXPECT_THAT(run_, IsEmpty());
}

TEST_F(NvidiaPersistenceTest, PassesOnThatTheToolFailed) {
  install("");
  status_ = 3;
  const auto done = nvidia_persistence(kernel_, kernel_)->set(kGpu, false);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "run /usr/bin/nvidia-smi -i 0000:01:00.0 -pm 0: it ended with status 3");
}

}  // namespace
}  // namespace ferry::host
