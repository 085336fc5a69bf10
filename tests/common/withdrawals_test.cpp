// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "common/plugin_files.h"
#include "tests/support/must.h"

namespace ferry {
namespace {

TEST(Withdrawals, AreReadOfAWholeStateFile) {
  const auto read = test::must(read_withdrawals(
      R"({"version": 2, "generation": 17, "phase": "applying", "more": [],
          "unavailable": [{"id": "0000:17:00.0", "reason": "it goes", "more": 1}, {"id": "b", "reason": ""}]})"));
  EXPECT_EQ(read.generation, 17U);
  EXPECT_THAT(read.devices, testing::ElementsAre(Withdrawal{"0000:17:00.0", "it goes"}, Withdrawal{"b", ""}));
  EXPECT_EQ(read.standby, "") << "hostd of before did not say it";
}

TEST(Withdrawals, SayWhyNothingAtAllShallBeOffered) {
  const auto stand_back_of = [](const std::string& value) {
    return read_withdrawals(R"({"version": 2, "generation": 1, "unavailable": [], "standby": )" + value +
                            "}");
  };
  EXPECT_EQ(test::must(stand_back_of("\"another serves\"")).standby, "another serves");
  EXPECT_EQ(test::must(stand_back_of("null")).standby, "");
  const auto read = stand_back_of("true");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "status.json: standby: expected a text or null");
}

struct BadState {
  const char* text;
  const char* message;
};
class BadWithdrawals : public testing::TestWithParam<BadState> {};

TEST_P(BadWithdrawals, AreRefusedWithTheKey) {
  const auto read = read_withdrawals(GetParam().text);
  ASSERT_FALSE(read) << GetParam().text;
  EXPECT_EQ(read.error().code, Errc::malformed_host);
  EXPECT_EQ(read.error().message, std::string("status.json: ") + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadWithdrawals,
    testing::Values(
        BadState{"", "not a JSON object"}, BadState{"[]", "not a JSON object"},
        BadState{"{\"version\": 2,", "not a JSON object"}, BadState{"{}", "version: expected 2"},
        BadState{R"({"version": 1, "generation": 1, "unavailable": []})", "version: expected 2"},
        BadState{R"({"version": 2, "unavailable": []})", "generation: expected a number"},
        BadState{R"({"version": 2, "generation": -1, "unavailable": []})", "generation: expected a number"},
        BadState{R"({"version": 2, "generation": 1})", "unavailable: expected a list"},
        BadState{R"({"version": 2, "generation": 1, "unavailable": {}})", "unavailable: expected a list"},
        BadState{R"({"version": 2, "generation": 1, "unavailable": ["a"]})",
                 "unavailable: expected the id of each device"},
        BadState{R"({"version": 2, "generation": 1, "unavailable": [{"id": 5}]})",
                 "unavailable: expected the id of each device"}));

}  // namespace
}  // namespace ferry
