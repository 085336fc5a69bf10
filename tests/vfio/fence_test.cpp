// SPDX-License-Identifier: Apache-2.0
#include "vfio/bind/fence.h"

#include <cerrno>

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry::vfio {
namespace {

using test::at;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A GPU on vfio that is to be unbound.
class FenceTest : public testing::Test {
 protected:
  FenceTest() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({.address = "0000:65:00.0", .group = 41, .driver = "vfio-pci"});
    rebind_.steps = {
        {.kind = Step::Kind::unbind, .address = at("0000:65:00.0"), .value = "vfio-pci", .why = "asked"}};
  }
  Result<> close() { return Fence(kernel_, nullptr).close(scan(kernel_).value(), rebind_); }
  test::FakeKernel kernel_;
  Rebind rebind_;
};

TEST_F(FenceTest, HoldsTheGroupsNode) {
  EXPECT_TRUE(close());
}

TEST_F(FenceTest, IsNoneWhereThereAreNoGroupNodes) {
  kernel_.remove("dev/vfio/41");
  kernel_.remove("sys/class/vfio/41");
  EXPECT_TRUE(close());
}

// A container that has a /dev of its own.
TEST_F(FenceTest, IsAnErrorWhereTheKernelHasANodeThatIsNotSeen) {
  kernel_.remove("dev/vfio/41");
  const auto closed = close();
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().code, Errc::refused);
  EXPECT_THAT(closed.error().message,
              HasSubstr("keep VMs from group 41: open /dev/vfio/41: No such file or directory"));
  EXPECT_THAT(closed.error().hint, HasSubstr("the host's /dev/vfio"));
}

TEST_F(FenceTest, HoldsTheNodeOfAGroupWithoutAnIommu) {
  kernel_.remove("dev/vfio/41");
  kernel_.remove("sys/class/vfio/41");
  kernel_.file("sys/class/vfio/noiommu-41/dev", "244:41\n");
  kernel_.directory("dev/vfio/noiommu-41");  // cannot be opened, and so it shows that it is
  const auto closed = close();
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, HasSubstr("open /dev/vfio/noiommu-41"));
  EXPECT_THAT(closed.error().hint, HasSubstr("CAP_SYS_RAWIO"));
  kernel_.remove("dev/vfio/noiommu-41");
  kernel_.file("dev/vfio/noiommu-41", "");
  EXPECT_TRUE(close());
}

TEST_F(FenceTest, IsAnErrorWhereItCannotBeHad) {
  kernel_.remove("dev/vfio/41");
  kernel_.directory("dev/vfio/41");  // whatever the reason is: EISDIR here, EPERM in a container
  const auto closed = close();
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().code, Errc::refused);
  EXPECT_THAT(closed.error().message, HasSubstr("keep VMs from group 41"));
  EXPECT_THAT(closed.error().hint, HasSubstr("Ferry's package on the node"));
  EXPECT_THAT(closed.error().hint, HasSubstr("/dev/vfio"));
}

/// Two GPUs on a driver with a lock, which the tree holds.
class DriverLockTest : public testing::Test, public DriverLock {
 protected:
  static constexpr const char* kGpu = "0000:65:00.0";
  static constexpr const char* kRecords = "run/ferry/hostd/unbind-locks";

  DriverLockTest() {
    kernel_.add_driver({.name = "nvidia", .ids = {"10de:2684"}, .unbind_lock = true});
    kernel_.add_function({.address = kGpu, .group = 41, .driver = "nvidia"});
    rebind_.steps = {{.kind = Step::Kind::unbind, .address = at(kGpu), .value = "nvidia", .why = "asked"}};
  }
  static std::string lock_of(const PciAddress& device) {
    return "proc/driver/nvidia/gpus/" + device.text() + "/unbindLock";
  }
  bool has(const PciAddress& device) const override { return kernel_.exists(lock_of(device)); }
  Result<> take(const PciAddress& device) override {
    recorded_when_taken_ = records();
    if (in_use_) return fail(Errc::refused, "in use");
    auto taken = kernel_.write(lock_of(device), "1");
    if (taken && answer_is_lost_) return fail(Errc::failed, "it cannot be read back");
    return taken;
  }
  Result<> release(const PciAddress& device) override {
    return has(device) ? kernel_.write(lock_of(device), "0") : Result<>();
  }
  Fence closed() {
    Fence fence(kernel_, this);
    closed_ = fence.close(scan(kernel_).value(), rebind_);
    return fence;
  }
  std::vector<std::string> records() const {
    return kernel_.list(kRecords).value_or(std::vector<std::string>());
  }
  bool held() const { return kernel_.read_attribute(lock_of(at(kGpu))).value_or("0") == "1"; }

  test::FakeKernel kernel_;
  Rebind rebind_;
  bool in_use_ = false;
  bool answer_is_lost_ = false;
  Result<> closed_;
  std::vector<std::string> recorded_when_taken_;
};

TEST_F(DriverLockTest, IsRecordedAsLongAsItIsHeld) {
  {
    const Fence fence = closed();
    EXPECT_TRUE(held());
    EXPECT_THAT(recorded_when_taken_, ElementsAre(kGpu));
  }
  EXPECT_FALSE(held());
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(DriverLockTest, IsNotTakenWhereItCannotBeRecorded) {
  kernel_.fail_change(1, ENOSPC);
  const Fence fence = closed();
  EXPECT_FALSE(closed_);
  EXPECT_FALSE(held());
}

TEST_F(DriverLockTest, IsNotRecordedWhereItIsRefused) {
  in_use_ = true;
  const Fence fence = closed();
  EXPECT_EQ(closed_.error().code, Errc::refused);
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(DriverLockTest, IsGivenBackWhereTheAnswerIsLost) {
  answer_is_lost_ = true;
  const Fence fence = closed();
  EXPECT_FALSE(closed_);
  EXPECT_FALSE(held());
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(DriverLockTest, LeftByAKilledRunIsGivenBackByTheNext) {
  closed().abandon_locks();
  ASSERT_TRUE(held());
  kernel_.fail_change(1, EIO);
  EXPECT_THAT(release_left_locks(kernel_, *this), ElementsAre(HasSubstr("stays taken: ")));
  EXPECT_THAT(
      release_left_locks(kernel_, *this),
      ElementsAre("the lock of 0000:65:00.0 against unbinding was left by an earlier run and is given "
                  "back"));
  EXPECT_FALSE(held());
  EXPECT_THAT(records(), IsEmpty());
  EXPECT_THAT(release_left_locks(kernel_, *this), IsEmpty());
}

TEST_F(DriverLockTest, OfADeviceThatHangsIsLeftAlone) {
  closed().abandon_locks();
  kernel_.hang_write({.path = "sys/bus/pci/drivers/nvidia/unbind", .value = kGpu});
  ASSERT_FALSE(kernel_.write("sys/bus/pci/drivers/nvidia/unbind", kGpu));
  kernel_.forget_changes();
  EXPECT_THAT(release_left_locks(kernel_, *this), IsEmpty());
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  EXPECT_THAT(records(), ElementsAre(kGpu));
}

TEST_F(DriverLockTest, OfANeighbourOfADeviceThatHangsIsLeftAlone) {
  closed().abandon_locks();
  kernel_.add_function({.address = "0000:66:00.0", .group = 41, .driver = "nvidia"});
  kernel_.hang_write({.path = "sys/bus/pci/drivers/nvidia/unbind", .value = "0000:66:00.0"});
  ASSERT_FALSE(kernel_.write("sys/bus/pci/drivers/nvidia/unbind", "0000:66:00.0"));
  kernel_.forget_changes();
  EXPECT_THAT(release_left_locks(kernel_, *this), IsEmpty());
  EXPECT_THAT(kernel_.changes(), IsEmpty());
  EXPECT_THAT(records(), ElementsAre(kGpu));
}

TEST_F(DriverLockTest, WentWithTheBindingOrTheBoot) {
  closed().abandon_locks();
  ASSERT_TRUE(kernel_.write("sys/bus/pci/drivers/nvidia/unbind", kGpu));
  EXPECT_THAT(release_left_locks(kernel_, *this), IsEmpty()) << "nothing to tell";
  EXPECT_THAT(records(), IsEmpty());
  kernel_.file(std::string(kRecords) + "/0000:65:00.0", "of-another-boot\n");
  kernel_.file(std::string(kRecords) + "/nonsense", "5a6b5d5e-0000-4000-8000-000000000001\n");
  EXPECT_THAT(recorded_locks(kernel_).value(), IsEmpty());
}

}  // namespace
}  // namespace ferry::vfio
