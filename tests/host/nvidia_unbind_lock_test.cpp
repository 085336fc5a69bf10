// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "host/usage/nvidia_driver.h"
#include "tests/support/fake_kernel.h"

namespace ferry::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kLock = "proc/driver/nvidia/gpus/0000:65:00.0/unbindLock";

class NvidiaUnbindLockTest : public testing::Test {
 protected:
  /// The driver as it is: every write succeeds, and the lock is granted only while nobody uses the GPU.
  void have_lock(bool in_use) {
    kernel_.file(kLock, "0\n");
    kernel_.on_write("proc/driver/nvidia/gpus/*/unbindLock",
                     [this, in_use](const auto& /*names*/, const std::string& value) {
                       written_.push_back(value);
                       kernel_.file(kLock, value == "1" && !in_use ? "1\n" : "0\n");
                       return 0;
                     });
  }
  test::FakeKernel kernel_;
  NvidiaUnbindLock lock_{kernel_, kernel_};
  std::vector<std::string> written_;
  vfio::PciAddress gpu_ = vfio::PciAddress::parse("0000:65:00.0").value();
};

TEST_F(NvidiaUnbindLockTest, IsHeldOnceTheDriverSaysSo) {
  have_lock(false);
  EXPECT_TRUE(lock_.has(gpu_));
  EXPECT_TRUE(lock_.take(gpu_));
  EXPECT_TRUE(lock_.release(gpu_));
  EXPECT_THAT(written_, ElementsAre("1", "0"));
}

TEST_F(NvidiaUnbindLockTest, IsNotBelievedByItsWrite) {
  have_lock(true);
  const auto taken = lock_.take(gpu_);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Errc::refused);
  EXPECT_THAT(taken.error().message, HasSubstr("0000:65:00.0 is in use"));
}

TEST_F(NvidiaUnbindLockTest, IsNotThereForAnotherDriversDevice) {
  EXPECT_FALSE(lock_.has(gpu_));
  EXPECT_TRUE(lock_.release(gpu_)) << "it goes with the binding";
  EXPECT_THAT(kernel_.changes(), IsEmpty());
}

TEST_F(NvidiaUnbindLockTest, PassesOnWhatTheWriteSays) {
  have_lock(false);
  kernel_.fail_change(1, EIO);
  EXPECT_EQ(lock_.take(gpu_).error().code, std::errc::io_error);
}

}  // namespace
}  // namespace ferry::host
