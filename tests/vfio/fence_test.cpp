// SPDX-License-Identifier: Apache-2.0
#include "vfio/fence.h"

#include <gmock/gmock.h>

#include "tests/vfio/machines.h"

namespace ferry {
namespace {

using test::at;
using testing::HasSubstr;

/// A GPU on vfio that is to be unbound.
class FenceTest : public testing::Test {
 protected:
  FenceTest() {
    kernel_.add_driver({.name = "vfio-pci", .vfio = true});
    kernel_.add_function({.address = "0000:65:00.0", .group = 41, .driver = "vfio-pci"});
    move_.steps = {
        {.kind = Step::Kind::unbind, .address = at("0000:65:00.0"), .value = "vfio-pci", .why = "asked"}};
  }
  Result<> close() { return Fence(kernel_, nullptr).close(scan(kernel_).value(), move_); }
  test::FakeKernel kernel_;
  Move move_;
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
  EXPECT_THAT(closed.error().hint, HasSubstr("/dev/vfio"));
}

}  // namespace
}  // namespace ferry
