// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "tests/support/must.h"

namespace ferry {
namespace {

using test::must;
using testing::EndsWith;
using testing::HasSubstr;

class LogTest : public testing::Test {
 protected:
  ~LogTest() override { must(set_up_log("off", LogFormat::text)); }

  static std::string logged(const std::function<void()>& talk) {
    testing::internal::CaptureStderr();
    talk();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, WritesOneJsonObjectALineWhateverTheMessage) {
  must(set_up_log("info", LogFormat::json));
  const std::string hostile = "say \"hi\" \\ back\nslash\ttab \x01 \x7f \xc2\x9b and a pattern %v {}";
  const std::string line = logged([&] { spdlog::warn("{}", hostile); });
  ASSERT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(json.is_object()) << line;
  EXPECT_EQ(json.at("message"), hostile);
  EXPECT_EQ(json.at("level"), "warning");
  EXPECT_THAT(json.at("time").get<std::string>(),
              testing::MatchesRegex("....-..-..T..:..:..\\....[+-]..:.."));
}

TEST_F(LogTest, WritesJsonOfBytesThatAreNoUtf8) {
  must(set_up_log("info", LogFormat::json));
  const auto json = nlohmann::json::parse(logged([] { spdlog::warn("a\xff"); }), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.at("message"), "a\xef\xbf\xbd");
}

TEST_F(LogTest, WritesALineForPeople) {
  must(set_up_log("info", LogFormat::text));
  const std::string line = logged([] { spdlog::info("bound 0000:3b:00.0: nouveau -> vfio-pci"); });
  EXPECT_THAT(line, HasSubstr(" info "));
  EXPECT_THAT(line, EndsWith("bound 0000:3b:00.0: nouveau -> vfio-pci\n"));
}

TEST_F(LogTest, GivesATerminalNoOrders) {
  const std::string hostile = "process \033[2J\xc2\x9b\x7f\nheld";
  must(set_up_log("info", LogFormat::text));
  EXPECT_THAT(logged([&] { spdlog::warn("{}", hostile); }),
              EndsWith(" warning process \\x1b[2J\\xc2\\x9b\\x7f\\x0aheld\n"));
  must(set_up_log("info", LogFormat::json));
  EXPECT_THAT(logged([&] { spdlog::warn("{}", hostile); }),
              HasSubstr(R"("process \u001b[2J\u009b\u007f\u000aheld")"));
}

TEST_F(LogTest, LeavesOutWhatIsBelowItsLevel) {
  must(set_up_log("warn", LogFormat::text));
  EXPECT_EQ(logged([] { spdlog::info("read"); }), "");
  EXPECT_THAT(logged([] { spdlog::warn("odd"); }), HasSubstr("odd"));
  must(set_up_log("off", LogFormat::text));
  EXPECT_EQ(logged([] { spdlog::error("bad"); }), "");
}

TEST_F(LogTest, RefusesAnUnknownLevelAndKeepsTheOldOne) {
  must(set_up_log("warn", LogFormat::text));
  const auto result = set_up_log("infos", LogFormat::json);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::usage);
  EXPECT_EQ(result.error().message, "unknown log level 'infos'; did you mean 'info'?");
  EXPECT_THAT(result.error().hint, HasSubstr("trace, debug, info, warn, error, off"));
  EXPECT_EQ(logged([] { spdlog::info("read"); }), "");
}

}  // namespace
}  // namespace ferry
