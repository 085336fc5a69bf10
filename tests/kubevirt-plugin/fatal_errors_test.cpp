// SPDX-License-Identifier: Apache-2.0
#include "vfio/judgement/fatal_errors.h"

#include <gmock/gmock.h>

#include "tests/support/fake_kernel.h"

namespace ferry::vfio {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class FatalErrorsTest : public testing::Test {
 protected:
  FatalErrorsTest() {
    kernel.add_driver({.name = "vfio-pci", .vfio = true});
    kernel.add_function({.address = "0000:01:00.0", .group = 15, .driver = "vfio-pci"});
  }
  std::string with_count(int count) {
    kernel.file("sys/devices/pci0000:00/0000:01:00.0/aer_dev_fatal",
                "TOTAL_ERR_FATAL " + std::to_string(count) + "\n");
    return errors.problem(kernel, kFunction);
  }

  static constexpr vfio::PciAddress kFunction = {.bus = 1};
  test::FakeKernel kernel;
  FatalErrors errors;
};

TEST_F(FatalErrorsTest, ForgivesNothingForWantOfADriver) {
  EXPECT_EQ(with_count(1), "");
  EXPECT_THAT(with_count(2), HasSubstr("1 fatal PCIe error"));
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/unbind", "0000:01:00.0"));
  EXPECT_THAT(with_count(2), HasSubstr("1 fatal PCIe error")) << "no driver has taken it anew";
  kernel.file("sys/devices/pci0000:00/0000:01:00.0/driver_override", "vfio-pci\n");
  ASSERT_TRUE(kernel.write_attribute("sys/bus/pci/drivers/vfio-pci/bind", "0000:01:00.0"));
  EXPECT_EQ(with_count(2), "");
  EXPECT_THAT(errors.found(), IsEmpty());
}

TEST_F(FatalErrorsTest, BeginsAgainWithACountThatDoes) {
  errors.remember({.function = "0000:01:00.0", .since = 2});
  EXPECT_EQ(with_count(1), "") << "it has been on the bus anew";
  EXPECT_THAT(with_count(2), HasSubstr("1 fatal PCIe error"));
}

TEST_F(FatalErrorsTest, LearnsTheBindingByItself) {
  errors.remember({.function = "0000:01:00.0", .since = 2});
  EXPECT_THAT(with_count(4), HasSubstr("2 fatal PCIe errors"));
  ASSERT_EQ(errors.found().size(), 1U);
  EXPECT_NE(errors.found()[0].binding, 0U);
  errors.remember({.function = "no address", .since = 2});
  EXPECT_EQ(errors.found().size(), 1U);
}

// Its group is in the way, or it cannot be read: the next process may be the first to look at it.
TEST_F(FatalErrorsTest, HandsOnWhatItHasNotLookedAt) {
  const FatalErrorsOf handed = {.function = "0000:02:00.0", .since = 2, .binding = 31207};
  errors.remember(handed);
  EXPECT_EQ(with_count(1), "");
  EXPECT_THAT(errors.found(), testing::ElementsAre(handed));
}

}  // namespace
}  // namespace ferry::vfio
