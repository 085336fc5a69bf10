// SPDX-License-Identifier: Apache-2.0
#include <ostream>

#include <gmock/gmock.h>

#include "vgpu-dm/plan/choose.h"

namespace ferry::vgpu {
namespace {

struct Good {
  const char* text;
  std::uint32_t mib;
};
void PrintTo(const Good& row, std::ostream* out) {
  *out << row.text;
}

class GoodMemorySize : public testing::TestWithParam<Good> {};

TEST_P(GoodMemorySize, IsReadInMiBRoundedUp) {
  const auto size = parse_memory_mib(GetParam().text);
  ASSERT_TRUE(size) << size.error().message;
  EXPECT_EQ(*size, GetParam().mib);
}

INSTANTIATE_TEST_SUITE_P(Table, GoodMemorySize,
                         testing::Values(Good{"6GiB", 6144}, Good{"6Gi", 6144}, Good{"4096MiB", 4096},
                                         Good{"512Mi", 512}, Good{"1TiB", 1048576}, Good{"6G", 5723},
                                         Good{"6GB", 5723}, Good{"1M", 1}, Good{"1MB", 1}, Good{"2M", 2},
                                         Good{"1048576M", 1000000}, Good{"007GiB", 7168},
                                         Good{"4095TiB", 4293918720}, Good{"4294967295MiB", 4294967295}));

struct Bad {
  const char* text;
  const char* why;
};
void PrintTo(const Bad& row, std::ostream* out) {
  *out << row.text;
}

class BadMemorySize : public testing::TestWithParam<Bad> {};

TEST_P(BadMemorySize, IsRefusedWithTheReasonAndTheForm) {
  const auto size = parse_memory_mib(GetParam().text);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code, Errc::usage);
  EXPECT_EQ(size.error().message,
            std::string("'") + GetParam().text + "' is not an amount of memory: " + GetParam().why);
  EXPECT_THAT(size.error().hint, testing::HasSubstr("6GiB"));
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadMemorySize,
    testing::Values(Bad{"", "it begins with no digit"}, Bad{"GiB", "it begins with no digit"},
                    Bad{"-6GiB", "it begins with no digit"}, Bad{"+6GiB", "it begins with no digit"},
                    Bad{" 6GiB", "it begins with no digit"}, Bad{"6", "it has no unit"},
                    Bad{"6 GiB", "' GiB' is no unit; did you mean 'GiB'?"},
                    Bad{"6gib", "'gib' is no unit; did you mean 'GiB'?"},
                    Bad{"6GiB ", "'GiB ' is no unit; did you mean 'GiB'?"},
                    Bad{"1.5GiB", "'.5GiB' is no unit"}, Bad{"6K", "'K' is no unit"},
                    Bad{"0x6GiB", "'x6GiB' is no unit"}, Bad{"0GiB", "it is none"},
                    Bad{"4096TiB", "no GPU has that much"}, Bad{"4294967296MiB", "no GPU has that much"},
                    Bad{"99999999999999999999MiB", "no GPU has that much"}));

}  // namespace
}  // namespace ferry::vgpu
