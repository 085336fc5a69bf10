// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "mdev/vgpu.h"

namespace ferry::mdev {
namespace {

TEST(MdevUuid, IsKeptInLowerCase) {
  EXPECT_EQ(parse_mdev_uuid("5B6C0F0E-3b1d-4f0e-9a57-2f6f5f1f7A10").value().text,
            "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a10");
}

class MalformedUuid : public testing::TestWithParam<const char*> {};

TEST_P(MalformedUuid, IsRefused) {
  const auto parsed = parse_mdev_uuid(GetParam());
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Errc::usage);
  EXPECT_EQ(parsed.error().message, std::string("'") + GetParam() + "' is not a UUID");
}

INSTANTIATE_TEST_SUITE_P(Table, MalformedUuid,
                         testing::Values("", "5b6c0f0e", "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a1",
                                         "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a100",
                                         "5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a1g",
                                         "5b6c0f0e03b1d04f0e09a5702f6f5f1f7a10",
                                         "{5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a}",
                                         " 5b6c0f0e-3b1d-4f0e-9a57-2f6f5f1f7a1", "-----"));

}  // namespace
}  // namespace ferry::mdev
